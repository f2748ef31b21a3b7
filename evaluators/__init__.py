"""How an attempt is scored: unit tests, comparison, any function, tests that a model wrote, a model as critic."""

from reflexion.evaluators.cascade import Cascade
from reflexion.evaluators.critic import Critic
from reflexion.evaluators.examples import function_asked_for
from reflexion.evaluators.function import Function, as_evaluator
from reflexion.evaluators.generated_tests import GeneratedTests, write_tests
from reflexion.evaluators.match import ExpectError, Match, read_expectation
from reflexion.evaluators.own_tests import OwnTests, usable
from reflexion.evaluators.records import Attempt, CriterionScore, Evaluation, Evaluator, Task
from reflexion.evaluators.unit_tests import UnitTests
from reflexion.sandbox import Limits, TestsInvalid, check_tests

__all__ = [
    "Attempt",
    "Cascade",
    "CriterionScore",
    "Critic",
    "Evaluation",
    "Evaluator",
    "ExpectError",
    "Function",
    "GeneratedTests",
    "Limits",
    "Match",
    "OwnTests",
    "Task",
    "TestsInvalid",
    "UnitTests",
    "as_evaluator",
    "check_tests",
    "function_asked_for",
    "read_expectation",
    "usable",
    "write_tests",
]
