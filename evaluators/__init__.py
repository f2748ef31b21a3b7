"""How an attempt is scored: tests, comparison, tools, any function, tests that a model wrote, a model as critic."""

from reflexion.evaluators.calibration import Calibration, calibration_of
from reflexion.evaluators.command import Command, exit_code, junit, tap
from reflexion.evaluators.critic import Critic
from reflexion.evaluators.examples import as_tests, examples_of
from reflexion.evaluators.expectation import ExpectError, asks_for_code, read_expectation
from reflexion.evaluators.function import Function, as_evaluator
from reflexion.evaluators.generated_tests import GeneratedTests, write_tests
from reflexion.evaluators.langsmith import as_langsmith_evaluator
from reflexion.evaluators.lint import Linter, TypeChecker
from reflexion.evaluators.match import Match
from reflexion.evaluators.own_tests import OwnTests, usable
from reflexion.evaluators.panel import Panel
from reflexion.evaluators.records import Attempt, CriterionScore, Evaluation, Evaluator, Task
from reflexion.evaluators.rubric import Criterion, CriterionError, Rubric
from reflexion.evaluators.task_text import function_asked_for
from reflexion.evaluators.unit_tests import UnitTests
from reflexion.sandbox import Limits, TestsInvalid, check_tests

__all__ = [
    "Attempt",
    "Calibration",
    "Command",
    "Criterion",
    "CriterionError",
    "CriterionScore",
    "Critic",
    "Evaluation",
    "Evaluator",
    "ExpectError",
    "Function",
    "GeneratedTests",
    "Limits",
    "Linter",
    "Match",
    "OwnTests",
    "Panel",
    "Rubric",
    "Task",
    "TestsInvalid",
    "TypeChecker",
    "UnitTests",
    "as_evaluator",
    "as_langsmith_evaluator",
    "as_tests",
    "asks_for_code",
    "calibration_of",
    "check_tests",
    "examples_of",
    "exit_code",
    "function_asked_for",
    "junit",
    "read_expectation",
    "tap",
    "usable",
    "write_tests",
]
