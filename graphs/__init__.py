"""State, routing, the assembled graph, and the agent around it."""

from reflexion.graphs.agent import Reflexion, open_reflexion
from reflexion.graphs.build import build_graph
from reflexion.graphs.calibrate import calibrate
from reflexion.graphs.calibration_report import CalibrationReport
from reflexion.graphs.labelled import Example, make_example, read_examples
from reflexion.graphs.result import Result
from reflexion.graphs.reviewing import Reviewer, ReviewPending
from reflexion.nodes.review import ReviewRequest
from reflexion.nodes.settings import ConfigurationError, Settings

__all__ = [
    "CalibrationReport",
    "ConfigurationError",
    "Example",
    "Reflexion",
    "Result",
    "ReviewPending",
    "ReviewRequest",
    "Reviewer",
    "Settings",
    "build_graph",
    "calibrate",
    "make_example",
    "open_reflexion",
    "read_examples",
]
