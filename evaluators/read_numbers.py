"""Reads numbers as people write them: thousands separators, decimal commas, units, minus signs."""

import re
from collections.abc import Iterator

_NUMBER = re.compile(
    r"""
    (?:(?<![\w.,)])(?P<sign>[-+−])[ ]?)?        # a sign, but not the dash of a range or of a word
    [$€£¥]?[ ]?
    (?<![\w.,])
    (?P<digits>\d+(?:[.,'’_\u00a0\u2009\u202f]\d+)*|[.,]\d+)
    (?P<exponent>[eE][-+]?\d+(?!\w))?
    """,
    re.VERBOSE,
)
_SPACED = re.compile(r"(\W*\d{1,3})((?: \d{3})+)(?![\d.,]*\d)")
_GROUPING = re.compile(r"['’_\u00a0\u2009\u202f]")
_BY_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?:\.\d{3}){2,}")


def numbers(text: str) -> Iterator[float]:
    """The numbers of a text.

    `1,234.5`, `1.234,5` and `1 234.5` are one number each; `1,234` is read as thousands, `3,14` as a decimal comma,
    `1,2,3` as three numbers. The dash of `3-5` is no minus sign.
    """
    text = _SPACED.sub(lambda match: match[1] + match[2].replace(" ", ""), text, count=1) if _whole(text) else text
    for match in _NUMBER.finditer(text):
        sign = -1 if match["sign"] in {"-", "−"} else 1
        for plain in _plain(_GROUPING.sub("", match["digits"])):
            yield sign * float(plain + (match["exponent"] or ""))


def _whole(text: str) -> bool:
    """Whether the text starts with its number, so that a space in it can only separate thousands."""
    return _SPACED.match(text) is not None


def _plain(digits: str) -> list[str]:
    """The digits as Python reads them; several where a comma separates items of a list."""
    if "," in digits and "." in digits:
        decimal = max(digits.rindex(","), digits.rindex("."))
        return [re.sub(r"[.,]", "", digits[:decimal]) + "." + digits[decimal + 1 :]]
    if _BY_THOUSANDS.fullmatch(digits):
        return [re.sub(r"[.,]", "", digits)]
    if digits.count(",") == 1:
        return [digits.replace(",", ".")]
    if digits.count(".") > 1:
        return []  # a version or a date
    return digits.split(",")
