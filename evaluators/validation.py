"""Which tests of a model's own are worth believing: each one is put to functions and attempts that ought to fail it."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from reflexion.evaluators.own_tests import OwnTest, OwnTests, counted
from reflexion.evaluators.task_text import Example
from reflexion.sandbox import Limits, TestResult, judge, parse
from reflexion.sandbox.rewrite import renamed

_FALSE = ("None", "False", "0", "''", "()", "[]", "{}")
_TRUE = ("True", "1", "-1", "'a'", "[0]")
STUBS = {f"return {value}": value for value in (*_FALSE, *_TRUE)}
STUBS["return its first argument"] = "args[0] if args else None"
"""Functions that solve no task: what they do, in words, and what they return."""

_ENOUGH = 2
"""Attempts that have to agree."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a test before there was any attempt."""

    stubs: tuple[str, ...]
    """Those that pass it."""
    stated: str
    """What the examples of the task say instead of what it wants; empty where they do not say anything else."""


async def validate(own: OwnTests, examples: Sequence[Example], limits: Limits) -> str:
    """Reject the tests that contradict the task's examples or that prove nothing, each with its reason.

    Returns:
        Why nothing could be validated; empty where it was.
    """
    trials = await try_out(own, examples, limits)
    if isinstance(trials, str):
        return trials
    reject_by_trials(own, trials)
    return ""


async def try_out(own: OwnTests, examples: Sequence[Example], limits: Limits) -> list[Trial] | str:
    """Run the tests that count on stubs, and on the task's examples, in one judgement; text is why it cannot be."""
    tests = counted(own)
    functions = [f"_stub{number}" for number in range(len(STUBS))] + ["_examples"]
    asserts = [_renamed(test["source"], own["function"], function) for test in tests for function in functions]
    verdict = await judge(_module(examples, own["function"]), program(asserts), limits=limits)
    if verdict.state != "ran":
        return f"the tests could not be tried out: {verdict.message}"
    results = iter(verdict.results)
    return [_trial([next(results) for _ in functions]) for _ in tests]


def reject_by_trials(own: OwnTests, trials: Sequence[Trial]) -> None:
    """Draw the conclusions from the trials of all tests that count.

    A test proves nothing if it holds for a false result as well as for a true one. One that a single constant fulfils
    may be a good one, such as `f([]) == []`; but where a stub fulfils all tests, none of the model's counts.
    """
    tests = counted(own)
    for test, trial in zip(tests, trials, strict=True):
        if test["origin"] == "model":
            test["rejected"] = _objection(trial)
    left = [trial for test, trial in zip(tests, trials, strict=True) if not test["rejected"]]
    fooled = next((stub for stub in STUBS if all(stub in trial.stubs for trial in left)), None)
    if fooled is not None:
        for test in counted(own):
            if test["origin"] == "model":
                test["rejected"] = f"a function that can only {fooled} passes it and all other tests"


def program(asserts: Sequence[str]) -> str:
    """A test file of asserts."""
    return "\n".join(["import math", *asserts])


def _module(examples: Sequence[Example], function: str) -> str:
    """The stubs, and a function that knows the examples and raises LookupError for everything else."""
    stubs = [f"def _stub{number}(*args, **kwargs): return {value}" for number, value in enumerate(STUBS.values())]
    known = ", ".join(f"{_renamed(example.call, function, '_key')}: {example.value}" for example in examples)
    return "\n".join(
        [
            *stubs,
            "def _key(*args, **kwargs): return repr((args, sorted(kwargs.items())))",
            f"def _examples(*args, **kwargs): return {{{known}}}[_key(*args, **kwargs)]",
        ]
    )


def _renamed(source: str, old: str, new: str) -> str:
    return ast.unparse(renamed(parse(source), old, new))


def _trial(results: Sequence[TestResult]) -> Trial:
    *by_stubs, by_examples = results
    stubs = tuple(stub for stub, result in zip(STUBS, by_stubs, strict=True) if result.passed)
    # Only a comparison wants something: where it raised, the call is none of the examples.
    return Trial(stubs, by_examples.got if by_examples.wanted and not by_examples.passed else "")


def _objection(trial: Trial) -> str:
    if trial.stated:
        return f"the task's examples say {trial.stated}"
    false = next((f"return {value}" for value in _FALSE if f"return {value}" in trial.stubs), "")
    true = next((f"return {value}" for value in _TRUE if f"return {value}" in trial.stubs), "")
    return f"it holds for functions that can only {false} or only {true}" if false and true else ""


def reject_by_agreement(own: OwnTests) -> bool:
    """Reject the tests against which the attempts agree; an example of the task never is.

    At least two attempts return the same value that the test does not want, and none returns another or passes. An
    attempt that fails an example, or more than half of the tests, has no say: so some tests are always left.

    Returns:
        Whether a test was rejected.
    """
    tests = counted(own)
    numbers = dict.fromkeys(number for test in tests for number in test["outcomes"])
    voters = [number for number in numbers if _has_say(tests, number)]
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


def _has_say(tests: Sequence[OwnTest], number: str) -> bool:
    passed = [test["outcomes"][number]["passed"] for test in tests]
    examples = all(ok for test, ok in zip(tests, passed, strict=True) if test["origin"] == "task")
    return examples and 2 * sum(passed) >= len(passed)
