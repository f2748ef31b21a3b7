"""Compares an answer with what was expected."""

import json
import math
import re
import string
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.evaluators.scores import ScoreError

_FINAL = re.compile(
    r"^[\s*_#>-]*(?:final\s+answer|answer|antwort)\s*[:=]?[*_]*\s*[:=]\s*(.+?)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = re.compile(r"[-+−]?\d[\d,  ]*(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+−]?\.\d+")
_FENCE = re.compile(r"```[\w-]*\s*\n(.*?)```", re.DOTALL)


class ExpectError(ValueError):
    """An expectation that cannot be read; says what forms there are."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an answer is compared with, and how."""

    kind: str
    """`exact`, `number`, `regex` or `json_schema`."""
    value: Any
    tolerance: float = 1e-6
    """For numbers: the largest absolute difference, or relative to the expected number where that is larger."""


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
        return Expectation("number", float(expect))
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
        re.compile(pattern)
    except re.error as error:
        raise ExpectError(f"expect re: {pattern!r} is no regular expression: {error}") from error
    return Expectation("regex", pattern)


def _number(number: Any, tolerance: Any) -> Expectation:
    try:
        wanted = float(number)
        allowed = 1e-6 if tolerance is None else float(tolerance)
    except (TypeError, ValueError) as error:
        raise ExpectError(f"expect num: {number!r} ± {tolerance!r} is no number; {_FORMS}") from error
    if not math.isfinite(wanted) or not allowed >= 0:
        raise ExpectError(f"expect num: {number!r} ± {tolerance!r}: the number has to be finite, the tolerance >= 0")
    return Expectation("number", wanted, allowed)


def _json_schema(schema: Any) -> Expectation:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, rarely needed
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ExpectError(f"expect json: is no JSON schema: {error.message}") from error
    return Expectation("json_schema", schema)


def final_answer(answer: str) -> str:
    """What follows the last `Answer:` line, or the whole answer where there is none."""
    found = _FINAL.findall(answer)
    return found[-1].strip("*_` ") if found else answer.strip()


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and doubled spaces (as the SQuAD evaluation does)."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", text).split())


class Match:
    """Right or wrong by comparison; a right answer is never told to the next attempt."""

    name = "match"

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Score 1 where the answer fits what the task expects, else 0."""
        try:
            expected = read_expectation(task.expect)
        except ExpectError as error:
            return Evaluation(score=None, feedback=str(error), evaluator=self.name)
        problems = _COMPARE[expected.kind](expected, attempt["answer"])
        return Evaluation(
            score=0.0 if problems else 1.0,
            feedback="\n".join(problems) or "as expected",
            evaluator=self.name,
            checks=_checks(expected) if problems else (),
        )


def _exact(expected: Expectation, answer: str) -> list[str]:
    final = final_answer(answer)
    wanted, got = str(expected.value), normalise(final)
    same = got == normalise(wanted) if normalise(wanted) else final == wanted.strip()
    return [] if same else [f"{final[:200]!r} is not the expected answer"]


def _numeric(expected: Expectation, answer: str) -> list[str]:
    try:
        got = last_number(final_answer(answer))
    except ScoreError as error:
        return [str(error)]
    close = math.isclose(got, expected.value, rel_tol=expected.tolerance, abs_tol=expected.tolerance)
    return [] if close else [f"{got:g} is not the expected number"]


def last_number(text: str) -> float:
    """The last number of a text, thousands separators allowed.

    Raises:
        ScoreError: there is none.
    """
    found = _NUMBER.findall(text)
    if not found:
        raise ScoreError(f"{text[:200]!r} holds no number")
    return float(re.sub(r"[,  ]", "", found[-1]).replace("−", "-"))


def _pattern(expected: Expectation, answer: str) -> list[str]:
    if re.search(expected.value, final_answer(answer)) or re.search(expected.value, answer):
        return []
    return [f"the answer does not match the pattern {expected.value}"]


def _structure(expected: Expectation, answer: str) -> list[str]:
    fenced = _FENCE.findall(answer)
    text = fenced[-1] if fenced else final_answer(answer)
    try:
        value = json.loads(text)
    except ValueError as error:
        return [f"the answer is not JSON: {error}"]
    errors = sorted(_validator(json.dumps(expected.value)).iter_errors(value), key=lambda e: list(map(str, e.path)))
    return [f"{error.json_path}: {error.message[:200]}" for error in errors[:10]]


@lru_cache(maxsize=16)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, rarely needed

    return Draft202012Validator(json.loads(schema))


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
