"""The forms in which an expected answer may be given."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import regex  # type: ignore[import-untyped]

from reflexion.evaluators.equivalence import Cases, CasesError


class ExpectError(ValueError):
    """An expectation that cannot be read; says what forms there are."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an answer is compared with, and how."""

    kind: str
    """`exact`, `number`, `regex`, `json_schema`, `outputs`, or `any` of several."""
    value: Any
    tolerance: float | None = None
    """For numbers: the largest absolute difference; None for a millionth of the expected number."""


def read_expectation(expect: Any) -> Expectation:
    """Read the forms in which an expectation may be given.

    A plain text is compared after normalisation, a number numerically. `re:PATTERN`, `num:3.14±0.01`,
    `json:{"type": …}` and `exact:TEXT` say which comparison is meant, as do the objects
    `{"regex": …}`, `{"number": …, "tolerance": …}`, `{"json_schema": {…}}` and `{"exact": …}`. In a list each item is
    an answer that is accepted. An object with `inputs`, and `outputs` or `reference`, is about code: see `Cases`.

    Raises:
        ExpectError: it has none of these forms, or the pattern, number or schema is wrong.
    """
    match expect:
        case bool():
            return Expectation("exact", str(expect))
        case int() | float():
            return _number(expect, None)
        case str() if expect.strip():
            return _of_text(expect)
        case dict():
            return _of_object(expect)
        case [_, *_]:
            return _any_of(expect)
    raise ExpectError(f"expect {expect!r} is neither a text, a number, an object nor a list of these; {_FORMS}")


def _any_of(expect: Sequence[Any]) -> Expectation:
    accepted = [read_expectation(item) for item in expect]
    if any(expectation.kind in {"any", "outputs"} for expectation in accepted):
        raise ExpectError("expect: a list of accepted answers holds neither lists nor inputs for code")
    return Expectation("any", accepted)


def _of_text(expect: str) -> Expectation:
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
        case {"inputs": _}:
            try:
                return Expectation("outputs", Cases.read(expect))
            except CasesError as error:
                raise ExpectError(f"expect {error}") from error
    raise ExpectError(
        f"expect object has keys {sorted(map(str, expect))}; one of regex, number, json_schema, exact, inputs is needed"
    )


def asks_for_code(expect: Any) -> bool:
    """Whether an expectation is about what code does, so that the answer has to be code."""
    return isinstance(expect, dict) and "inputs" in expect


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
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ExpectError(f"expect num: {number!r} ± {tolerance!r} is no number; {_FORMS}") from error
    if not math.isfinite(wanted) or not (allowed is None or allowed >= 0):
        raise ExpectError(f"expect num: {number!r} ± {tolerance!r}: the number has to be finite, the tolerance >= 0")
    return Expectation("number", wanted, allowed)


def _real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("a bool is no number")
    if isinstance(value, str) and value.strip().endswith("%"):
        return float(value.strip()[:-1]) / 100
    if isinstance(value, str) and "/" in value:
        return float(Fraction(value.replace(" ", "")))
    return float(value)


def _json_schema(schema: Any) -> Expectation:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, rarely needed
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ExpectError(f"expect json: is no JSON schema: {error.message}") from error
    return Expectation("json_schema", schema)
