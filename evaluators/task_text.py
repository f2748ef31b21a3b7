"""The function that a task asks for, and the examples of it that the task states beyond doubt.

They stand beside tests that a model wrote, and overrule them; `examples` makes tests of all that a text shows.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from reflexion.evaluators.literals import is_literal, read_expression

_BEGUN = re.compile(r"^[ \t]*(?:async )?def (\w+)\((?!(?:self|cls)\b)", re.MULTILINE)
_CALLED = re.compile(r"(?<!def )(?<![\w.])([A-Za-z_]\w*)\((?!e?s\))")
_NAMED = re.compile(r"(?:called|named|namens|function|Funktion)\s+`([A-Za-z_]\w*)`|(?:called|named|namens)\s+(\w+)")
_SAYS = re.compile(
    r"""`?\s*
    (?: == | => | ➞ | → | -> | =(?!=)
    | \b(?: is | gives | ist | ergibt | (?:(?:should|must|will)\ )? (?:returns?|be|equals?) )\b
    )\s*:?\s*`?""",
    re.VERBOSE,
)
_ENDS = re.compile(r"""\s*(?:$|[`.,;:)#"'](?!\w)|(?:and|und|but|because|since|while|as|denn|weil)\b)""")
_PROMPT = ">>>"
_LONGEST_CALL, _LONGEST_VALUE = 1_000, 300
"""Characters."""
_MOST_CALLS, _MOST_BRACKETS = 200, 40
"""Places that are looked at, and closing brackets at each."""


@dataclass(frozen=True, slots=True)
class Example:
    """A call and what it is to return, both as Python source with literals only."""

    call: str
    value: str


def function_asked_for(text: str) -> str | None:
    """The name of the function that a task is about; None where it names none.

    The last one that the text begins with `def`, else the first one that it calls or says to be called so.
    """
    begun = _BEGUN.findall(text)
    if begun:
        return str(begun[-1])
    called = [(match.start(), match[1]) for match in _CALLED.finditer(text) if _may_be_asked_for(match[1])]
    named = [(match.start(), match[1] or match[2]) for match in _NAMED.finditer(text)]
    found = sorted((at, name) for at, name in [*called, *named] if _may_be_asked_for(name))
    return found[0][1] if found else None


def _may_be_asked_for(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name)


def examples(text: str, function: str) -> list[Example]:
    """The examples of a task that can be read without guessing: literal arguments, a literal result.

    `>>> f(2)` with its result on the next line, and `f(2) == 4` with whatever words or arrows stand for `==`.
    Where a text says two things about one call, it is taken to say nothing about it.
    """
    told: dict[str, set[str]] = {}
    for call, rest in _calls(text, function):
        value = _value(rest)
        if value is not None:
            told.setdefault(ast.unparse(call), set()).add(value)
    return [Example(call, *values) for call, values in told.items() if len(values) == 1]


def _calls(text: str, function: str) -> Iterator[tuple[ast.Call, str]]:
    """Each call with literal arguments, and the text that tells its result."""
    for match in islice(re.finditer(rf"(?<![\w.]){re.escape(function)}\(", text), _MOST_CALLS):
        call, end = _call_at(text, match.start())
        if call is None or not all(is_literal(part) for part in [*call.args, *(k.value for k in call.keywords)]):
            continue
        line = text.rfind("\n", 0, match.start()) + 1
        rest = text[end:]
        if text[line : match.start()].strip() == _PROMPT:
            yield call, "== " + rest.lstrip(" \t").removeprefix("\n")
        else:
            yield call, rest.partition("\n")[0]


def _call_at(text: str, start: int) -> tuple[ast.Call | None, int]:
    brackets = re.finditer(r"\)", text[start : start + _LONGEST_CALL])
    for bracket in islice(brackets, _MOST_BRACKETS):
        call = read_expression(text[start : start + bracket.end()])
        if isinstance(call, ast.Call):
            return call, start + bracket.end()
    return None, start


def _value(rest: str) -> str | None:
    """The literal after the words that stand for `==`, written the one way that Python writes it."""
    says = _SAYS.match(rest)
    if says is None:
        return None
    told = rest[says.end() :].partition("\n")[0]
    for end in range(min(len(told), _LONGEST_VALUE), 0, -1):
        value = read_expression(told[:end])
        if value is None or told[:end].rstrip().endswith((",", ".")) or not is_literal(value):
            continue
        bare_tuple = isinstance(value, ast.Tuple) and not told.lstrip().startswith("(")
        return ast.unparse(value) if not bare_tuple and _ENDS.match(told, end) else None
    return None
