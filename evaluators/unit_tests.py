"""Scores an answer by running its code against the task's tests."""

import ast
import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace

from reflexion.evaluators.code import extract_code
from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.sandbox import Limits, TestResult, Verdict, judge, parse_or_none

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
        verdict = await judge(code, task.tests, entry=self._entry or entry_of(task.text, code), limits=self._limits)
        bodies = await asyncio.to_thread(_bodies, task.tests)
        results = tuple(_with_body(result, bodies) for result in verdict.results)
        return evaluation_of(replace(verdict, results=results))


def _with_body(result: TestResult, bodies: Mapping[str, str]) -> TestResult:
    """A failed test function under what it does: its name alone would say nothing to whoever has not seen it."""
    if result.passed or result.name not in bodies or result.message.startswith("assert "):
        return result
    return replace(result, name=f"{result.name}: {bodies[result.name]}")


def _bodies(tests: str) -> dict[str, str]:
    """The statements of each test function and method, in one line."""
    tree = parse_or_none(tests)
    if tree is None:
        return {}
    owners = [("", tree.body), *((f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef))]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        owner + node.name: "; ".join(" ".join(ast.unparse(line).split()) for line in node.body)
        for owner, body in owners
        for node in body
        if isinstance(node, functions)
    }


def entry_of(text: str, code: str) -> str | None:
    """The last function that a task's text begins and the code defines."""
    defined = functions_of(code)
    named = [name for name in _BEGUN.findall(text) if name in defined]
    return named[-1] if named else None


def functions_of(code: str) -> list[str]:
    """The functions that code defines outside of classes and functions, in their order."""
    return _DEFINED.findall(code)


def evaluation_of(verdict: Verdict) -> Evaluation:
    """What a verdict of the sandbox means for an attempt."""
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
