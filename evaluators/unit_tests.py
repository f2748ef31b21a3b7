"""Scores an answer by running its code against the task's tests."""

import asyncio
import re

from reflexion.evaluators.code import extract_code
from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.sandbox import Limits, TestResult, Verdict, judge

_SHOWN_FAILURES = 10
_SHOWN_OUTPUT = 500
_SHOWN_MESSAGE = 1500
_BEGUN = re.compile(r"^[ \t]*(?:async )?def (\w+)\(", re.MULTILINE)
_DEFINED = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)


class UnitTests:
    """Runs the code of an answer in the sandbox; the score is the share of the tests that pass.

    Args:
        limits: time, memory and output of one judgement.
        entry: the function that `check(candidate)` is called with; by default the last one that the task's text
            starts with `def` and the code defines, else the last one in the code.
    """

    name = "unit_tests"

    def __init__(self, limits: Limits = Limits(), entry: str | None = None) -> None:  # noqa: B008 - it is immutable
        self._limits = limits
        self._entry = entry

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge one attempt by the task's tests.

        Returns:
            A score of None where the tests or the sandbox are at fault: that says nothing about the answer.
        """
        code = await asyncio.to_thread(extract_code, attempt["answer"])
        verdict = await judge(code, task.tests, entry=self._entry or _entry(task.text, code), limits=self._limits)
        return evaluation_of(verdict)


def _entry(text: str, code: str) -> str | None:
    defined = set(_DEFINED.findall(code))
    named = [name for name in _BEGUN.findall(text) if name in defined]
    return named[-1] if named else None


def evaluation_of(verdict: Verdict) -> Evaluation:
    """What a judgement means for an attempt; None as score where it says nothing about it."""
    match verdict.state:
        case "no_tests" | "tests_invalid":
            return _made(None, f"The tests could not be used: {verdict.message}")
        case "unavailable":
            return _made(None, f"The code could not be run: {verdict.message}")
        case "candidate_failed":
            return _made(0.0, f"The code itself fails before any test is run:\n{verdict.message}", verdict)
        case "timeout":
            return _made(0.0, f"The code took too long: {verdict.message}.", verdict)
        case "crashed":
            return _made(0.0, f"The run broke off: {verdict.message}.", verdict)
        case "ran":
            passed = sum(result.passed for result in verdict.results)
            score = passed / verdict.collected
            summary = f"{passed} of {verdict.collected} tests passed."
            return _made(score, f"{summary}\n{_failures(verdict)}".rstrip(), verdict)


def _made(score: float | None, feedback: str, verdict: Verdict | None = None) -> Evaluation:
    checks: list[str] = []
    if verdict is not None:
        checks = [_check(result) for result in verdict.results if not result.passed][:_SHOWN_FAILURES]
        if verdict.output.strip() and score != 1:
            feedback += f"\nThe code printed:\n{_capped(verdict.output.strip(), _SHOWN_OUTPUT)}"
    return Evaluation(score=score, feedback=feedback, checks=tuple(checks), evaluator=UnitTests.name)


def _failures(verdict: Verdict) -> str:
    failed = [result for result in verdict.results if not result.passed]
    lines = [f"- {_capped(_statement(result), 300)}: {told(result)}" for result in failed[:_SHOWN_FAILURES]]
    if len(failed) > len(lines):
        lines.append(f"- and {len(failed) - len(lines)} more")
    return "\n".join(lines)


def told(result: TestResult) -> str:
    """How a test failed: what came out and what was wanted, or the exception."""
    compared = f"got {result.got}, wanted {result.wanted}" if result.wanted else ""
    return _capped("; ".join(part for part in (compared, result.message) if part), _SHOWN_MESSAGE)


def _check(result: TestResult) -> str:
    """Give a failed test as a statement to make true: the assert in a test function says more than its name."""
    inside = result.message.removeprefix("assert ") if result.message.startswith("assert ") else ""
    return _capped(inside or _statement(result), 300)


def _statement(result: TestResult) -> str:
    return result.name.removeprefix("assert ")


def _capped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
