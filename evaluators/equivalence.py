"""Compares what code gives for a list of inputs with given outputs, or with what a reference gives."""

import ast
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from reflexion.evaluators.code import extract_code
from reflexion.evaluators.records import Evaluation, Task
from reflexion.evaluators.unit_tests import entry_of, evaluation_of, functions_of
from reflexion.sandbox import Limits, TestResult, judge, parse

_PREAMBLE = """
from copy import deepcopy as _copy
from pytest import approx as _approx
nan, inf = float("nan"), float("inf")

class _Raised:
    def __init__(self, error):
        self.kind = type(error).__name__
    def __eq__(self, other):
        return isinstance(other, _Raised) and other.kind == self.kind
    def __repr__(self):
        return f"raises {self.kind}"

def _holds_float(value):
    if isinstance(value, dict):
        return any(map(_holds_float, value.values()))
    return isinstance(value, float) or (isinstance(value, (list, tuple)) and any(map(_holds_float, value)))

def _close(value):
    return _approx(value, rel=1e-9, abs=1e-12, nan_ok=True) if _holds_float(value) else value

def _wanted(*args):
    try:
        return _close(_reference(*args))
    except Exception as error:
        return _Raised(error)

def _got(function, *args):
    try:
        return function(*_copy(args))
    except Exception as error:
        if _Raised(error) == _wanted(*args):
            return _Raised(error)
        raise
"""


_RAISES = "raises "


class CasesError(ValueError):
    """Inputs, outputs or a reference that cannot be used; says why."""


@dataclass(frozen=True, slots=True)
class Cases:
    """Inputs on which code is tried, and what is wanted of it."""

    inputs: Sequence[Sequence[Any]]
    """Each the positional arguments of one call."""

    outputs: Sequence[Any] | None
    """One for each input, or None where the reference gives them."""

    reference: str = ""
    """Python source that defines `function`."""

    function: str = ""
    """What is called; empty for the function that the task's text begins, else the code's last one."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "Cases":
        """The cases that an object with `inputs`, and `outputs` or `reference`, and perhaps `function` describes.

        Raises:
            CasesError: something is missing or of another form.
        """
        inputs, outputs, reference = given.get("inputs"), given.get("outputs"), given.get("reference")
        unknown = sorted(set(given) - {"inputs", "outputs", "reference", "function"})
        if unknown:
            raise CasesError(f"inputs: there is no {unknown[0]!r} beside them")
        if not _are_lists(inputs):
            raise CasesError(
                "inputs: a list is needed that holds the arguments of each call as a list, [[1, 2], [3, 4]]"
            )
        if (outputs is None) == (reference is None):
            raise CasesError("inputs: either `outputs` or a `reference` is needed beside them")
        function = given.get("function") or (_last_function(reference) if reference is not None else "")
        if not isinstance(function, str) or (function and not function.isidentifier()):
            raise CasesError(f"function: {function!r} is no name of a function")
        if outputs is not None and not (isinstance(outputs, list | tuple) and len(outputs) == len(inputs)):
            raise CasesError(f"outputs: a list of {len(inputs)} is needed, one for each input")
        if not _is_plain([*inputs, *(outputs or ())]):
            raise CasesError("inputs: they and the outputs have to be plain data, as in JSON")
        return cls(inputs, outputs, reference or "", function)

    @property
    def calls(self) -> list[str]:
        """The arguments of each call as Python writes them."""
        return [", ".join(map(repr, arguments)) for arguments in self.inputs]

    def tests(self, function: str) -> str:
        """Tests for the sandbox: one assert a case; before them, one that there is a reference where it is needed."""
        if self.outputs is not None:
            cases = zip(self.calls, self.outputs, strict=True)
            return "\n".join(
                [_PREAMBLE, *(f"assert {function}({call}) == _close({wanted!r})" for call, wanted in cases)]
            )
        made = ["_found = {}", f"exec({self.reference!r}, _found)", f"_reference = _found[{self.function!r}]"]
        made.append("assert callable(_reference)")
        made += [f"assert _got({function}, {call}) == _wanted({call})" for call in self.calls]
        return "\n".join([_PREAMBLE, *made])


async def compare_outputs(cases: Cases, task: Task, answer: str, limits: Limits) -> Evaluation:
    """Score the share of inputs for which the answer's code gives what is wanted; both run in the sandbox.

    Floats may differ by a billionth, everything else is compared with `==`. Where the reference raises, the code has
    to raise an exception of the same name.
    """
    code = await asyncio.to_thread(extract_code, answer)
    named = entry_of(task.text, code) or next((name for name in reversed(functions_of(code)) if name[0] != "_"), "")
    function = cases.function or named or "candidate"
    verdict = await judge(code, cases.tests(function), entry=function, limits=limits)
    results = list(verdict.results)
    if cases.outputs is None and results:
        there = results.pop(0)
        if verdict.state == "ran" and not there.passed:
            return Evaluation(score=None, feedback=f"the reference cannot be run: {there.message}")
        if verdict.state == "ran" and all(result.wanted.startswith(_RAISES) for result in results):
            return Evaluation(score=None, feedback="the reference raises on every input")
    calls = [f"{function}({call})" for call in cases.calls]
    told = tuple(_named(result, call) for result, call in zip(results, calls, strict=False))
    return evaluation_of(replace(verdict, results=told, collected=len(calls)))


def _named(result: TestResult, call: str) -> TestResult:
    """The result under the call and what it is to give, as the next attempt can be told it."""
    wanted = result.wanted
    if wanted.startswith("approx("):
        wanted = wanted.removeprefix("approx(").removesuffix(")")
    told = f"{call} {wanted}" if wanted.startswith(_RAISES) else f"{call} == {wanted}" if wanted else f"{call} is right"
    return replace(result, name=told, wanted=wanted)


def _are_lists(value: object) -> TypeGuard[Sequence[Sequence[Any]]]:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, list | tuple) for item in value)


def _is_plain(value: object) -> bool:
    match value:
        case list() | tuple() | set() | frozenset():
            return all(map(_is_plain, value))
        case dict():
            return all(_is_plain(part) for item in value.items() for part in item)
    return value is None or isinstance(value, bool | int | float | str | bytes)


def _last_function(source: Any) -> str:
    try:
        body = parse(source).body
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise CasesError(f"reference: it is no Python: {error}") from error
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    if not names:
        raise CasesError("reference: it defines no function")
    return names[-1]
