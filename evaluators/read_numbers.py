"""Reads numbers as people write them: thousands separators, decimal commas, fractions, units, minus signs."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(
    r"""
    (?:(?<![\w.,)])(?P<sign>[-+−])[ ]?)?        # a sign, but not the dash of a range or of a word
    [$€£¥]?[ ]?
    (?<![\w.,])
    (?P<digits>\d+(?:[.,'’_\u00a0\u2009\u202f]\d+)*|[.,]\d+)
    (?P<exponent>[eE][-+]?\d+(?!\w))?
    (?:[ ]?[/⁄][ ]?(?P<below>\d+)(?![\w/⁄]|[.,]\d))?   # a fraction, but no date
    (?P<percent>[ ]?%)?
    """,
    re.VERBOSE,
)
_SPACED = re.compile(r"(\W*\d{1,3})((?: \d{3})+)(?![\d.,]*\d)")
_GROUPING = re.compile(r"['’_\u00a0\u2009\u202f]")
_BY_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?:\.\d{3}){2,}")


_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")


def numbers(text: str) -> list[float]:
    """The numbers of a text.

    `1,234.5`, `1.234,5` and `1 234.5` are one number each; `1,234` is read as thousands, `3,14` as a decimal comma,
    `1,2,3` as three numbers, `1/2` and `2 1/2` as fractions. The dash of `3-5` is no minus sign.
    """
    return [value for value, _ in _found(text)]


def last_number(text: str) -> Sequence[float]:
    """What the last number of a text may mean: nothing where there is none, `50%` both 50 and 0.5, else itself."""
    found = _found(text)
    if not found:
        return ()
    value, percent = found[-1]
    return (value, value / 100) if percent else (value,)


def _found(text: str) -> list[tuple[float, bool]]:
    """Each number, and whether it is a percentage."""
    text = _LATEX_FRACTION.sub(r"\1/\2", text)
    text = _SPACED.sub(lambda match: match[1] + match[2].replace(" ", ""), text, count=1) if _whole(text) else text
    found: list[tuple[float, bool]] = []
    whole_until = -1  # where a whole number ended, to which a fraction may belong
    for match in _NUMBER.finditer(text):
        sign = -1 if match["sign"] in {"-", "−"} else 1
        plain = _plain(_GROUPING.sub("", match["digits"]))
        values = [sign * float(digits + (match["exponent"] or "")) for digits in plain]
        if match["below"]:
            below = float(match["below"])
            in_date = text[match.start() - 1 : match.start()] in {"/", "⁄"}
            if in_date or len(values) != 1 or not below:
                values.append(below)
            else:
                part = values[0] / below
                mixed = text[whole_until : match.start("digits")] == " " and 0 <= part < 1
                whole = found.pop()[0] if mixed else 0.0
                values = [whole - part if whole < 0 else whole + part]
        found += [(value, bool(match["percent"])) for value in values]
        whole_until = match.end() if match["digits"].isdigit() and match.end() == match.end("digits") else -1
    return found


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
