"""Reads a score off what a model wrote, or refuses to."""

import re
from typing import Any

LOWEST, HIGHEST = 1, 10
"""The rubric's scale, as the prompts state it."""

_NUMBER = r"\d+(?:[.,]\d+)?"
_FRACTION = re.compile(rf"({_NUMBER})\s*(?:/|out of|von|of)\s*({_NUMBER})", re.IGNORECASE)
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_BARE = re.compile(rf"(?<![\w.,-]){_NUMBER}(?![\w.,]*\w)")


class ScoreError(ValueError):
    """No score, several, or one that is on another scale."""


def read_score(value: Any) -> float:
    """A score as 0..1.

    A denominator or a percent sign is taken at its word (`8/10`, `85%`); a bare number has to lie on the
    rubric's scale. Nothing is guessed and nothing clamped: `85` may be of 100, or a slip.

    Args:
        value: a number, or text with exactly one score in it.

    Raises:
        ScoreError: it cannot be read without guessing.
    """
    if isinstance(value, bool) or value is None:
        raise ScoreError(f"{value!r} is not a number")
    if isinstance(value, int | float):
        return _on_scale(float(value))
    if isinstance(value, dict):
        inner = {str(key).lower(): item for key, item in value.items()}
        if "value" in inner or "score" in inner:
            return read_score(inner.get("value", inner.get("score")))
        raise ScoreError(f"{value!r} is not a number")
    if not isinstance(value, str):
        raise ScoreError(f"{value!r} is not one number")
    return _in_text(value)


def _in_text(text: str) -> float:
    found = [_share(_float(top), _float(bottom)) for top, bottom in _FRACTION.findall(text)]
    rest = _FRACTION.sub(" ", text)
    found += [_share(_float(number), 100.0) for number in _PERCENT.findall(rest)]
    rest = _PERCENT.sub(" ", rest)
    bare = [_float(number) for number in _BARE.findall(rest)]
    if len(found) + len(bare) != 1:
        raise ScoreError(f"expected one score, found {len(found) + len(bare)} numbers in {text[:80]!r}")
    return found[0] if found else _on_scale(bare[0])


def _float(number: str) -> float:
    return float(number.replace(",", "."))


def _share(part: float, whole: float) -> float:
    if not 0 <= part <= whole or whole == 0:
        raise ScoreError(f"{part:g} of {whole:g} is no share")
    return part / whole


def _on_scale(number: float) -> float:
    if not LOWEST <= number <= HIGHEST:
        raise ScoreError(f"{number:g} is outside the scale from {LOWEST} to {HIGHEST}")
    return number / HIGHEST
