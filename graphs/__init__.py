"""State, routing, the assembled graph, and the agent around it."""

from reflexion.graphs.agent import Reflexion, open_reflexion
from reflexion.graphs.build import build_graph
from reflexion.graphs.result import Result
from reflexion.nodes.settings import ConfigurationError, Settings

__all__ = ["ConfigurationError", "Reflexion", "Result", "Settings", "build_graph", "open_reflexion"]
