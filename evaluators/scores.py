"""Reads a score off what a model wrote, or refuses to."""

import re
from typing import Any

LOWEST, HIGHEST = 1, 10
"""The rubric's scale, as the prompts state it."""

_NUMBER = r"\d+(?:[.,]\d+)?"
_ALONE = r"(?<![\w.,/+\-−–])"
_ENDS = r"(?![.,/\-−–]?\w)"
_FRACTION = re.compile(rf"{_ALONE}({_NUMBER})\s*(?:/|out of|von|of)\s*({_NUMBER}){_ENDS}", re.IGNORECASE)
_PERCENT = re.compile(rf"{_ALONE}({_NUMBER})\s*%")
_ANY = re.compile(r"\d")
_BARE = re.compile(
    rf"[\W_]*(?:(?:the|my|final|overall)?\s*(?:score|rating|grade|note|punktzahl|bewertung)\W*(?:is|of|ist|von)?[\W_]*)?"
    rf"{_ALONE}({_NUMBER})\s*(?:points?|punkte?n?)?[\W_]*",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"\d,\d{3}\Z")


class ScoreError(ValueError):
    """No score, several, or one that is on another scale."""


def read_score(value: Any) -> float:
    """A score as 0..1.

    A denominator or a percent sign is taken at its word (`8/10`, `85%`); a bare number has to stand alone and lie on
    the rubric's scale. Nothing is guessed and nothing clamped: `85` may be of 100, or a slip.

    Args:
        value: a number, or text with exactly one score in it.

    Raises:
        ScoreError: it cannot be read without guessing.
    """
    if isinstance(value, bool) or value is None:
        raise ScoreError(f"{value!r} is not a number")
    if isinstance(value, int | float):
        return _on_scale(value)
    if isinstance(value, dict):
        named = [item for key, item in value.items() if str(key).strip().lower() in {"value", "score"}]
        if len(named) == 1:
            return read_score(named[0])
    if not isinstance(value, str):
        raise ScoreError(f"{value!r} is not one number")
    return _in_text(value)


def _in_text(text: str) -> float:
    shares = [(_float(top), _float(bottom)) for top, bottom in _FRACTION.findall(text)]
    rest = _FRACTION.sub(" ", text)
    shares += [(_float(number), 100.0) for number in _PERCENT.findall(rest)]
    rest = _PERCENT.sub(" ", rest)
    if len(shares) == 1 and not _ANY.search(rest):
        return _share(*shares[0])
    bare = _BARE.fullmatch(text)
    if bare is None:
        raise ScoreError(f"expected one score and nothing else, found {text[:80]!r}")
    return _on_scale(_float(bare[1]))


def _float(number: str) -> float:
    if _THOUSANDS.search(number):
        raise ScoreError(f"{number!r} may be thousands or a decimal comma")
    return float(number.replace(",", "."))


def _share(part: float, whole: float) -> float:
    if not 0 <= part <= whole or whole == 0:
        raise ScoreError(f"{part:g} of {whole:g} is no share")
    return part / whole


def _on_scale(number: float) -> float:
    if not LOWEST <= number <= HIGHEST:
        raise ScoreError(f"{number} is outside the scale from {LOWEST} to {HIGHEST}")
    return number / HIGHEST
