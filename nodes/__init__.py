"""The steps of the graph, one file each: a node reads state, does one thing and returns a delta."""

from reflexion.nodes.actor import actor
from reflexion.nodes.evaluator import evaluator
from reflexion.nodes.planner import planner
from reflexion.nodes.recall import recall
from reflexion.nodes.reflector import reflector
from reflexion.nodes.remember import remember
from reflexion.nodes.review import Decision, Review, ReviewRequest, read_decision, review
from reflexion.nodes.settings import MOST_ATTEMPTS, ConfigurationError, Settings, explain, make_settings
from reflexion.nodes.turn import Failure, Kit, StopReason, as_graph_node

__all__ = [
    "MOST_ATTEMPTS",
    "ConfigurationError",
    "Decision",
    "Failure",
    "Kit",
    "Review",
    "ReviewRequest",
    "Settings",
    "StopReason",
    "actor",
    "as_graph_node",
    "evaluator",
    "explain",
    "make_settings",
    "planner",
    "read_decision",
    "recall",
    "reflector",
    "remember",
    "review",
]
