"""Tests that a model wrote itself: the records, and how they are read from its reply."""

import ast
import re
from collections.abc import Iterator
from typing import Literal

from typing_extensions import TypedDict

from reflexion.evaluators.task_text import Example
from reflexion.sandbox import parse_or_none

MOST_READ, MOST_USED = 24, 10
"""Asserts that are looked at in a reply, and tests of them that are used."""
LONGEST = 400
"""Characters of a test."""
_LONGEST_STATEMENT = 30
"""Lines."""

_FENCED = re.compile(r"^[ \t]*```\w*[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_FUNCTIONS = frozenset(
    {"abs", "all", "any", "bool", "dict", "float", "frozenset", "int", "isinstance", "len", "list", "max", "min"}
    | {"round", "set", "sorted", "str", "sum", "tuple", "type"}
)
_OF_MATH = frozenset({"isclose", "pi", "e", "inf", "nan"})
_ALLOWED = (
    *(ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict),
    *(ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator),
    *(ast.Attribute, ast.Subscript, ast.Slice),
)
_LARGEST_FACTOR, _LARGEST_BASE, _LARGEST_EXPONENT = 10_000, 1_000, 100


class Outcome(TypedDict):
    """What became of a test on one attempt."""

    passed: bool
    got: str
    """The repr of what came out where that is not what was wanted; empty where nothing that can be compared did."""
    told: str
    """The same for people: what came out and what was wanted, or the exception."""


class OwnTest(TypedDict):
    """One test."""

    source: str
    """One assert."""
    origin: Literal["model", "task"]
    """The model wrote it, or it is an example that stands in the task."""
    rejected: str
    """Why it does not count; empty where it does."""
    outcomes: dict[str, Outcome]
    """By the number of the attempt, as text: JSON knows no other keys."""


class OwnTests(TypedDict):
    """All tests of a run that has none from its user: plain JSON, kept from one attempt to the next."""

    function: str
    """What they call; empty where the task names no function."""
    tests: list[OwnTest]
    problem: str
    """Why there are none; empty where there are some."""


def usable(own: OwnTests | None) -> bool:
    """Whether there are tests that can judge."""
    return own is not None and not own["problem"] and bool(counted(own))


def counted(own: OwnTests) -> list[OwnTest]:
    """The tests that are not rejected."""
    return [test for test in own["tests"] if not test["rejected"]]


def from_task(example: Example) -> OwnTest:
    """An example of the task as a test."""
    return OwnTest(source=f"assert {example.call} == {example.value}", origin="task", rejected="", outcomes={})


def read_tests(reply: str, function: str) -> list[OwnTest]:
    """The asserts in a model's reply, those that cannot be used with the reason.

    A usable one calls the function with plain values and compares plain values: so it does nothing but that, gives
    the same result each time, and says the same wherever it is read.
    """
    tests: dict[str, OwnTest] = {}
    used = 0
    for node in _asserts(reply):
        source = ast.unparse(ast.Assert(node.test))
        if source in tests:
            continue
        objection = _objection(node, source, function) or ("there are enough" if used >= MOST_USED else "")
        used += not objection
        tests[source] = OwnTest(source=source[:LONGEST], origin="model", rejected=objection, outcomes={})
        if len(tests) >= MOST_READ:
            break
    return list(tests.values())


def _asserts(reply: str) -> Iterator[ast.Assert]:
    for text in _FENCED.findall(reply) or [reply]:
        tree = parse_or_none(text)
        statements = [tree] if tree else _statements(text)
        for statement in statements:
            found = [node for node in ast.walk(statement) if isinstance(node, ast.Assert)]
            yield from sorted(found, key=lambda node: node.lineno)


def _statements(text: str) -> Iterator[ast.Module]:
    """Each assert of a text that is no Python as a whole."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("assert "):
            continue
        for end in range(number + 1, min(len(lines), number + _LONGEST_STATEMENT) + 1):
            tree = parse_or_none("\n".join(lines[number:end]).lstrip())
            if tree is not None:
                yield tree
                break


def _objection(node: ast.Assert, source: str, function: str) -> str:
    """Why a test cannot be used whatever it says; empty where it can."""
    if len(source) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    parts = list(ast.walk(node.test))
    strange = next((part for part in parts if not _plain(part, function)), None)
    if strange is not None:
        return f"it holds more than calls of {function} and plain values: {ast.unparse(strange)[:80]}"
    if not any(isinstance(part, ast.Call) and _named(part.func, function) for part in parts):
        return f"it does not call {function}"
    return ""


def _named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _plain(node: ast.AST, function: str) -> bool:
    match node:
        case ast.Name(id=name):
            return name in {function, "math", *_FUNCTIONS}
        case ast.Attribute(value=ast.Name(id="math"), attr=name):
            return name in _OF_MATH
        case ast.Attribute():
            return False
        case ast.Call(func=func):
            return isinstance(func, ast.Name | ast.Attribute)
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _small(left, _LARGEST_FACTOR) or _small(right, _LARGEST_FACTOR)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return _small(left, _LARGEST_BASE) and _small(right, _LARGEST_EXPONENT)
        case ast.BinOp(op=ast.LShift() | ast.RShift()):
            return False
    return isinstance(node, _ALLOWED)


def _small(node: ast.expr, largest: int) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) <= largest
