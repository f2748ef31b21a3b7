"""State, routing, the assembled graph, and the agent around it."""

from reflexion.graphs.agent import Reflexion, open_reflexion
from reflexion.graphs.as_tool import as_tool
from reflexion.graphs.build import build_graph
from reflexion.graphs.experiments import ExampleResult, Experiment, as_target, evaluate_dataset
from reflexion.graphs.result import Result
from reflexion.nodes.settings import ConfigurationError, Settings

__all__ = [
    "ConfigurationError",
    "ExampleResult",
    "Experiment",
    "Reflexion",
    "Result",
    "Settings",
    "as_target",
    "as_tool",
    "build_graph",
    "evaluate_dataset",
    "open_reflexion",
]
