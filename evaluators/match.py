"""Compares an answer with what was expected."""

import asyncio
import json
import math
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]

from reflexion.evaluators.read_numbers import numbers
from reflexion.evaluators.records import Attempt, Evaluation, Task

_FINAL = re.compile(
    r"^[ \t*_#>-]*(?:the[ \t]+)?(?:(?:final|endgültige)[ \t]+)?(?:answer|antwort)[ \t*_]*[:=][*_]*\s*(\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)

PATTERN_TIMEOUT_S = 2.0
"""How long a pattern may search. Some need longer than the universe has."""


class ExpectError(ValueError):
    """An expectation that cannot be read; says what forms there are."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an answer is compared with, and how."""

    kind: str
    """`exact`, `number`, `regex` or `json_schema`."""
    value: Any
    tolerance: float | None = None
    """For numbers: the largest absolute difference; None for a millionth of the expected number."""


def read_expectation(expect: Any) -> Expectation:
    """Read the forms in which an expectation may be given.

    A plain text is compared after normalisation, a number numerically. `re:PATTERN`, `num:3.14±0.01`,
    `json:{"type": …}` and `exact:TEXT` say which comparison is meant, as do the objects
    `{"regex": …}`, `{"number": …, "tolerance": …}`, `{"json_schema": {…}}` and `{"exact": …}`.

    Raises:
        ExpectError: it has none of these forms, or the pattern, number or schema is wrong.
    """
    if isinstance(expect, bool):
        return Expectation("exact", str(expect))
    if isinstance(expect, int | float):
        return _number(expect, None)
    if isinstance(expect, dict):
        return _of_object(expect)
    if not isinstance(expect, str) or not expect.strip():
        raise ExpectError(f"expect {expect!r} is neither a text, a number nor an object; {_FORMS}")
    kind, colon, rest = expect.partition(":")
    match kind.strip() if colon else "":
        case "re":
            return _regex(rest)
        case "num":
            number, _, tolerance = rest.replace("+-", "±").partition("±")
            return _number(number, tolerance or None)
        case "json":
            try:
                return _json_schema(json.loads(rest))
            except json.JSONDecodeError as error:
                raise ExpectError(f"expect json: is not JSON: {error}") from error
        case "exact":
            return Expectation("exact", rest.strip())
        case _:
            return Expectation("exact", expect)


_FORMS = "forms: TEXT, re:PATTERN, num:3.14±0.01, json:{schema}, exact:TEXT"


def _of_object(expect: dict[str, Any]) -> Expectation:
    match expect:
        case {"regex": str() as pattern}:
            return _regex(pattern)
        case {"number": number}:
            return _number(number, expect.get("tolerance"))
        case {"json_schema": dict() as schema}:
            return _json_schema(schema)
        case {"exact": value}:
            return Expectation("exact", str(value))
    raise ExpectError(f"expect object has keys {sorted(expect)}; one of regex, number, json_schema, exact is needed")


def _regex(pattern: str) -> Expectation:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ExpectError(f"expect re: {pattern!r} is no regular expression: {error}") from error
    return Expectation("regex", pattern)


def _number(number: Any, tolerance: Any) -> Expectation:
    try:
        wanted = _real(number)
        allowed = None if tolerance is None else _real(tolerance)
    except (TypeError, ValueError, OverflowError) as error:
        raise ExpectError(f"expect num: {number!r} ± {tolerance!r} is no number; {_FORMS}") from error
    if not math.isfinite(wanted) or not (allowed is None or allowed >= 0):
        raise ExpectError(f"expect num: {number!r} ± {tolerance!r}: the number has to be finite, the tolerance >= 0")
    return Expectation("number", wanted, allowed)


def _real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("a bool is no number")
    return float(value)


def _json_schema(schema: Any) -> Expectation:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, rarely needed
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ExpectError(f"expect json: is no JSON schema: {error.message}") from error
    return Expectation("json_schema", schema)


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
    text = unicodedata.normalize("NFC", text).casefold().replace("−", "-")
    for pattern, instead in _UNWANTED:
        text = pattern.sub(instead, text)
    if not _OPERATOR.search(text):
        text = _BRACKETS.sub("", text)
    return _ARTICLE.sub("", " ".join(text.split()))


class Match:
    """Right or wrong by comparison; a right answer is never told to the next attempt."""

    name = "match"

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Score 1 where the answer fits what the task expects, else 0."""
        try:
            expected = read_expectation(task.expect)
        except ExpectError as error:
            return Evaluation(score=None, feedback=str(error), evaluator=self.name)
        try:
            problems = await asyncio.to_thread(_COMPARE[expected.kind], expected, attempt["answer"])
        except TimeoutError:
            reason = f"the pattern {expected.value!r} searched for more than {PATTERN_TIMEOUT_S:g} s; simplify it"
            return Evaluation(score=None, feedback=reason, evaluator=self.name)
        return Evaluation(
            score=0.0 if problems else 1.0,
            feedback="\n".join(problems) or "as expected",
            evaluator=self.name,
            checks=_checks(expected) if problems else (),
        )


def _exact(expected: Expectation, answer: str) -> list[str]:
    final = final_answer(answer)
    wanted = str(expected.value).strip()
    same = normalise(final) == normalise(wanted) if normalise(wanted) else final == wanted
    return [] if same else [f"{final[:200]!r} is not the expected answer"]


def _numeric(expected: Expectation, answer: str) -> list[str]:
    found = list(numbers(final_answer(answer)))
    if not found:
        return [f"{final_answer(answer)[:200]!r} holds no number"]
    tolerance = abs(expected.value) * 1e-6 if expected.tolerance is None else expected.tolerance
    # A hair more, since 3.15 - 3.14 is not quite 0.01.
    close = math.isclose(found[-1], expected.value, rel_tol=1e-12, abs_tol=max(tolerance * (1 + 1e-9), 1e-12))
    return [] if close else [f"{found[-1]:g} is not the expected number"]


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
