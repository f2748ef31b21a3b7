"""State, routing, the assembled graph, and the agent around it."""

from reflexion.graphs.agent import Reflexion, open_reflexion
from reflexion.graphs.as_tool import as_tool
from reflexion.graphs.build import build_graph
from reflexion.graphs.calibrate import calibrate
from reflexion.graphs.calibration_report import CalibrationReport
from reflexion.graphs.consolidate import consolidate
from reflexion.graphs.experiments import ExampleResult, Experiment, as_target, evaluate_dataset
from reflexion.graphs.labelled import Example, make_example, read_examples
from reflexion.graphs.proposals import Consolidation, Proposal, apply_consolidation
from reflexion.graphs.result import Result
from reflexion.graphs.reviewing import Reviewer, ReviewPending
from reflexion.graphs.run import Drained
from reflexion.models import Fenced
from reflexion.nodes.review import ReviewRequest
from reflexion.nodes.settings import ConfigurationError, Settings

__all__ = [
    "CalibrationReport",
    "ConfigurationError",
    "Consolidation",
    "Drained",
    "Example",
    "ExampleResult",
    "Experiment",
    "Fenced",
    "Proposal",
    "Reflexion",
    "Result",
    "ReviewPending",
    "ReviewRequest",
    "Reviewer",
    "Settings",
    "apply_consolidation",
    "as_target",
    "as_tool",
    "build_graph",
    "calibrate",
    "consolidate",
    "evaluate_dataset",
    "make_example",
    "open_reflexion",
    "read_examples",
]
