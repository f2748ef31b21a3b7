"""Which tests of a model's own are worth believing: each one is put to functions and attempts that ought to fail it."""

import ast
from collections.abc import Sequence

from reflexion.evaluators.examples import Example
from reflexion.evaluators.own_tests import OwnTest, OwnTests, counted
from reflexion.sandbox import Limits, TestResult, judge

STUBS = {
    **{f"return {value}": value for value in ("None", "False", "0", "''", "()", "[]", "{}")},
    **{f"return {value}": value for value in ("True", "1", "-1", "'a'", "[0]")},
    "return its first argument": "args[0] if args else None",
}
"""Functions that solve no task: what they do, in words, and what they return."""
_FALSE, _TRUE = range(7), range(7, 12)
"""Which of them return something false, and which something true."""

_EXAMPLES = "_examples"


async def validate(own: OwnTests, examples: Sequence[Example], limits: Limits) -> str:
    """Reject the tests that contradict the task's examples or that prove nothing, each with its reason.

    A test proves nothing if it holds for a false result as well as for a true one. One that a single constant fulfils
    may be a good one, such as `f([]) == []`; but where a stub fulfils all tests, none of them counts.

    Returns:
        Why nothing could be validated; empty where it was.
    """
    tests = counted(own)
    rows = [*range(len(STUBS)), _EXAMPLES]
    asserts = [_renamed(test["source"], own["function"], f"_stub{row}") for test in tests for row in rows]
    verdict = await judge(_module(examples, own["function"]), program(asserts), limits=limits)
    if verdict.state != "ran":
        return f"the tests could not be tried out: {verdict.message}"
    for number, test in enumerate(tests):
        results = verdict.results[number * len(rows) : (number + 1) * len(rows)]
        if test["origin"] == "model":
            test["rejected"] = _objection(results, examples)
    passing = {
        stub: {number for number in range(len(tests)) if verdict.results[number * len(rows) + row].passed}
        for row, stub in enumerate(STUBS)
    }
    left = {number for number, test in enumerate(tests) if not test["rejected"]}
    fooled = next((stub for stub, passed in passing.items() if passed >= left), None)
    if fooled is not None:
        for number in left:
            if tests[number]["origin"] == "model":
                tests[number]["rejected"] = f"a function that can only {fooled} passes it and all other tests"
    return ""


def program(asserts: Sequence[str]) -> str:
    """A test file of asserts."""
    return "\n".join(["import math", *asserts])


def _module(examples: Sequence[Example], function: str) -> str:
    lines = [f"def _stub{row}(*args, **kwargs):\n    return {value}" for row, value in enumerate(STUBS.values())]
    lines.append("def _key(*args, **kwargs):\n    return repr((args, sorted(kwargs.items())))")
    known = ", ".join(f"{_renamed(example.call, function, '_key')}: {example.value}" for example in examples)
    lines.append(f"def _stub{_EXAMPLES}(*args, **kwargs):\n    return {{{known}}}[_key(*args, **kwargs)]")
    return "\n".join(lines)


class _Renamed(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new, node.ctx) if node.id == self._old else node


def _renamed(source: str, old: str, new: str) -> str:
    return ast.unparse(_Renamed(old, new).visit(ast.parse(source)))


def _objection(results: Sequence[TestResult], examples: Sequence[Example]) -> str:
    *stubs, by_examples = results
    # An exception is no contradiction: the call is none of the examples.
    if by_examples.wanted and not by_examples.passed:
        return f"the task's examples say {by_examples.got}"
    words = list(STUBS)
    pairs = ((words[false], words[true]) for false in _FALSE for true in _TRUE if _both(stubs, false, true))
    both = next(pairs, None)
    return f"it holds for functions that can only {both[0]} or only {both[1]}" if both else ""


def _both(stubs: Sequence[TestResult], one: int, other: int) -> bool:
    return stubs[one].passed and stubs[other].passed


def reject_by_agreement(own: OwnTests) -> bool:
    """Reject the tests against which the attempts agree; an example of the task never is.

    At least two attempts of different text return the same value that the test does not want, and none returns
    another or passes. An attempt that fails an example, or more than half of the tests, has no say.

    Returns:
        Whether a test was rejected.
    """
    tests = counted(own)
    voters = [number for number in _numbers(tests) if _has_say(tests, number)]
    rejected = False
    for test in tests:
        outcomes = [test["outcomes"][number] for number in voters]
        if test["origin"] == "task" or any(outcome["passed"] for outcome in outcomes):
            continue
        values = [outcome["got"] for outcome in outcomes if outcome["got"]]
        if len(values) >= _ENOUGH and len(set(values)) == 1:
            test["rejected"] = f"{len(values)} different attempts agree on {values[0]}"
            rejected = True
    return rejected


_ENOUGH = 2


def _numbers(tests: Sequence[OwnTest]) -> list[str]:
    return list(dict.fromkeys(number for test in tests for number in test["outcomes"]))


def _has_say(tests: Sequence[OwnTest], number: str) -> bool:
    passed = [test["outcomes"][number]["passed"] for test in tests]
    examples = all(ok for test, ok in zip(tests, passed, strict=True) if test["origin"] == "task")
    return examples and 2 * sum(passed) >= len(passed)
