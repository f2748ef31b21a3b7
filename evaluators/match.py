"""Compares an answer with what was expected."""

import asyncio
import json
import math
import re
import unicodedata
from dataclasses import replace
from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]

from reflexion.evaluators.equivalence import compare_outputs
from reflexion.evaluators.expectation import Expectation, ExpectError, read_expectation
from reflexion.evaluators.read_numbers import last_number
from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.sandbox import Limits

_FINAL = re.compile(
    r"^[ \t*_#>-]*(?:the[ \t]+)?(?:(?:final|endgültige)[ \t]+)?(?:answer|antwort)[ \t*_]*[:=][*_]*\s*(\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)

PATTERN_TIMEOUT_S = 2.0
"""How long a pattern may search. Some need longer than the universe has."""


def final_answer(answer: str) -> str:
    """What follows the last `Answer:`, the last `\\boxed{…}` in it or anywhere, else the whole answer."""
    found = _FINAL.findall(answer)
    final = found[-1] if found else answer
    boxed = _BOXED.findall(final)
    return (boxed[-1] if boxed else final).strip("*_`$ \t\r\n") if found or boxed else answer.strip()


_OPERATOR = re.compile(r"[+*/^=<>|&%]")
_UNWANTED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"(?<=\d),(?=\d{3}(?!\d))", ""),  # of thousands
        (r"[.:](?!\d)|(?<=[^\W\d])[.:]", ""),  # but not a decimal point or a time
        (r"-(?![\w(.])|(?<=[^\W\d])-(?=[^\W\d])", " "),  # but not a minus sign
        (r",", " "),
        (r"[!\"'’‘“”„«»`;?\\_$…]", ""),
    )
)
_BRACKETS = re.compile(r"[()\[\]{}]")
_ARTICLE = re.compile(r"\b(?:a|an|the) (?=\S)")


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and doubled spaces, as the SQuAD evaluation does.

    Unlike there, what changes a number or a formula stays: decimal points, minus signs, operators, and brackets
    beside operators; so does an article at the end, which is then the name of a choice.
    """
    text = _composed(_composed(text).casefold()).replace("−", "-")
    for pattern, instead in _UNWANTED:
        text = pattern.sub(instead, text)
    if not _OPERATOR.search(text):
        text = _BRACKETS.sub("", text)
    # An accent may have lost the punctuation between it and its letter.
    return _ARTICLE.sub("", " ".join(_composed(text).split()))


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


class Match:
    """Right or wrong by comparison; a right answer is never told to the next attempt.

    Args:
        limits: of code that is run because its outputs are compared.
    """

    name = "match"

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 - it is immutable
        self._limits = limits

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Score 1 where the answer fits what the task expects, else 0; for outputs of code the share that is right."""
        try:
            expected = read_expectation(task.expect)
        except ExpectError as error:
            return Evaluation(score=None, feedback=str(error), evaluator=self.name)
        if expected.kind == "outputs":
            compared = await compare_outputs(expected.value, task, attempt["answer"], self._limits)
            return replace(compared, evaluator=self.name)
        try:
            problems = await asyncio.to_thread(_problems, expected, attempt["answer"])
        except TimeoutError:
            reason = f"a pattern searched for more than {PATTERN_TIMEOUT_S:g} s; simplify it: {task.expect!r}"
            return Evaluation(score=None, feedback=reason, evaluator=self.name)
        return Evaluation(
            score=0.0 if problems else 1.0,
            feedback="\n".join(problems) or "as expected",
            evaluator=self.name,
            checks=_checks(expected) if problems else (),
        )


def _problems(expected: Expectation, answer: str) -> list[str]:
    """What is wrong with an answer; nothing where it is right."""
    if expected.kind != "any":
        return _COMPARE[expected.kind](expected, answer)
    problems: list[str] = []
    for accepted in expected.value:
        found = _problems(accepted, answer)
        if not found:
            return []
        problems += found
    return list(dict.fromkeys(problems))


def _exact(expected: Expectation, answer: str) -> list[str]:
    final = final_answer(answer)
    wanted = str(expected.value).strip()
    same = normalise(final) == normalise(wanted) if normalise(wanted) else final == wanted
    return [] if same else [f"{final[:200]!r} is not the expected answer"]


def _numeric(expected: Expectation, answer: str) -> list[str]:
    readings = last_number(final_answer(answer))
    if not readings:
        return [f"{final_answer(answer)[:200]!r} holds no number"]
    tolerance = abs(expected.value) * 1e-6 if expected.tolerance is None else expected.tolerance
    # A hair more, since 3.15 - 3.14 is not quite 0.01.
    allowed = max(tolerance * (1 + 1e-9), 1e-12)
    close = any(math.isclose(number, expected.value, rel_tol=1e-12, abs_tol=allowed) for number in readings)
    return [] if close else [f"{readings[0]:g} is not the expected number"]


def _pattern(expected: Expectation, answer: str) -> list[str]:
    for text in (final_answer(answer), answer):
        if regex.search(expected.value, text, timeout=PATTERN_TIMEOUT_S, concurrent=True):
            return []
    return [f"the answer does not match the pattern {expected.value}"]


def _structure(expected: Expectation, answer: str) -> list[str]:
    fenced = _FENCE.findall(answer)
    text = fenced[-1] if fenced else final_answer(answer)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [f"the answer is not JSON: {error}"]
    errors = sorted(_validator(json.dumps(expected.value)).iter_errors(value), key=lambda e: list(map(str, e.path)))
    return [f"{error.json_path}: {error.message[:200]}" for error in errors[:10]]


@lru_cache(maxsize=16)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, rarely needed
    from referencing import Registry  # noqa: PLC0415 - an empty one, so that no `$ref` makes us fetch an address

    return Draft202012Validator(json.loads(schema), registry=Registry())


def _checks(expected: Expectation) -> list[str]:
    """What may be told to the next attempt: a form, never a value."""
    match expected.kind:
        case "regex":
            return [f"the answer matches the regular expression {expected.value}"]
        case "json_schema":
            return [f"the answer is JSON that fits this schema: {json.dumps(expected.value)}"]
        case _:
            return []


_COMPARE = {"exact": _exact, "number": _numeric, "regex": _pattern, "json_schema": _structure}
