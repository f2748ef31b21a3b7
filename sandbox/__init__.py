"""Runs code nobody trusts: a candidate and its tests in two locked processes, and the verdict that comes of it."""

from reflexion.sandbox.collect import TestsInvalid, check_tests
from reflexion.sandbox.judging import judge
from reflexion.sandbox.layers import Unavailable, available_layers, missing_layers
from reflexion.sandbox.parsing import parse, parse_or_none
from reflexion.sandbox.records import Limits, TestResult, Verdict

__all__ = [
    "Limits",
    "TestResult",
    "TestsInvalid",
    "Unavailable",
    "Verdict",
    "available_layers",
    "check_tests",
    "judge",
    "missing_layers",
    "parse",
    "parse_or_none",
]
