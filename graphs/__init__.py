"""State, routing, the assembled graph, and the agent around it."""

from reflexion.graphs.agent import Reflexion, open_reflexion
from reflexion.graphs.build import build_graph
from reflexion.graphs.result import Result
from reflexion.graphs.reviewing import Reviewer, ReviewPending
from reflexion.nodes.review import ReviewRequest
from reflexion.nodes.settings import ConfigurationError, Settings

__all__ = [
    "ConfigurationError",
    "Reflexion",
    "Result",
    "ReviewPending",
    "ReviewRequest",
    "Reviewer",
    "Settings",
    "build_graph",
    "open_reflexion",
]
