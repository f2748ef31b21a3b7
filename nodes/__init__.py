"""The steps of the graph, one file each: a node reads state, does one thing and returns a delta."""

from reflexion.nodes.actor import actor
from reflexion.nodes.evaluator import evaluator
from reflexion.nodes.planner import planner
from reflexion.nodes.recall import recall
from reflexion.nodes.reflector import reflector
from reflexion.nodes.remember import remember
from reflexion.nodes.settings import ConfigurationError, Settings, explain, make_settings
from reflexion.nodes.turn import Failure, Kit, StopReason, as_graph_node

__all__ = [
    "ConfigurationError",
    "Failure",
    "Kit",
    "Settings",
    "StopReason",
    "actor",
    "as_graph_node",
    "evaluator",
    "explain",
    "make_settings",
    "planner",
    "recall",
    "reflector",
    "remember",
]
