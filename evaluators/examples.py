"""Makes tests of the examples in a text: doctest sessions, and lines such as `add(1, 2) == 3`.

For somebody who says that the examples are the tests, so as many as can be are taken: several functions, objects,
exceptions, printed lines. `task_text` reads only what cannot be misread, as a model's own tests are checked against it.
"""

import ast
import re
import textwrap
from collections.abc import Iterator

from reflexion.evaluators.literals import is_literal, read_expression
from reflexion.sandbox import TestsInvalid, check_tests

_LINE = re.compile(r"^\s*(\w+\(.*\))\s*(?:==|=>|➞|->|→|returns?|should return)\s*(.+?)\s*$", re.MULTILINE)
_SESSION = re.compile(r"^[ \t]*>>> ", re.MULTILINE)


def examples_of(text: str) -> str:
    """The examples of a text as tests for `UnitTests`.

    Of doctest sessions (`>>> add(1, 2)`) each expression with a value, a printed line or an exception becomes a test,
    and so does a comparison; calls and other statements in between are kept. A value that Python can read is compared
    with `==`, any other by how it is shown; one that is left open by `...` is not compared. A line such as
    `add(1, 2) == 3`, `add(1, 2) => 3` or `add(1, 2) returns 3` is a test where Python can read the value.

    Args:
        text: a task, a docstring, or whole Python source with docstrings.

    Returns:
        Python source, empty where there is no example. `tests=examples_of(task)` judges a task by its own examples.
    """
    made = list(dict.fromkeys(_from_lines(text)))
    if _SESSION.search(text):
        made += (test for test in _from_sessions(text) if test not in made)
    if any("pytest.raises" in test for test in made):
        made.insert(0, "import pytest")
    return "\n".join(made) if any("assert " in test or "pytest.raises" in test for test in made) else ""


def as_tests(tests: str) -> str:
    """Tests as `UnitTests` takes them: the text itself, or its examples where these are all the tests it holds.

    Raises:
        TestsInvalid: it holds no test of any kind.
    """
    try:
        check_tests(tests)
    except TestsInvalid:
        examples = examples_of(tests) if _SESSION.search(tests) else ""
        if not examples:
            raise
        return examples
    return tests


def _from_lines(text: str) -> Iterator[str]:
    for call, value in _LINE.findall(text):
        if _is_literal(value) and isinstance(read_expression(call), ast.Call):
            yield f"assert {call} == {value}"


def _from_sessions(text: str) -> Iterator[str]:
    import doctest  # noqa: PLC0415 - brings the debugger along, and is rarely needed

    try:
        examples = doctest.DocTestParser().get_examples(_without_quotes(text))
    except ValueError:  # a session that is not written as doctest has it
        return
    for example in examples:
        test = _test(example.source.strip(), example.want.strip(), example.exc_msg)
        if test:
            yield test


def _test(source: str, want: str, raised: str | None) -> str:
    """One example as a test, or as a statement between tests; empty where it can be neither."""
    tree = read_expression(source)
    if raised is not None:
        name = raised.partition(":")[0].strip()
        return f"with pytest.raises({name if name.isidentifier() else 'Exception'}):\n{textwrap.indent(source, '    ')}"
    if tree is None:
        return "" if want else source
    shown = source if isinstance(tree, ast.Call | ast.Name | ast.Attribute | ast.Subscript) else f"({source})"
    shown = shown if "\n" not in source and "#" not in source else f"({ast.unparse(tree)})"
    printed = isinstance(tree, ast.Call) and ast.unparse(tree.func) == "print"
    match tree:
        case ast.Compare() if want in {"", "True"}:
            return f"assert {ast.unparse(tree)}"
        case _ if not want:
            return source if isinstance(tree, ast.Call) and not printed else ""
        case _ if "..." in want:
            return ""
        case ast.Call(args=[ast.expr() as value], keywords=[]) if printed and not isinstance(value, ast.Starred):
            return f"assert str({ast.unparse(value)}).strip() == {want.replace('<BLANKLINE>', '')!r}"
        case _ if printed:
            return ""
    # Prose may follow a value without the empty line that doctest needs.
    literal = next((text for text in (want, want.partition("\n")[0]) if _is_literal(text)), None)
    return f"assert repr({shown}) == {want!r}" if literal is None else f"assert {shown} == {literal}"


def _without_quotes(text: str) -> str:
    """The text without the marks that end a docstring, which doctest would take for a part of the last output."""
    return re.sub(r'"""|\'\'\'', "\n", text)


def _is_literal(value: str) -> bool:
    tree = read_expression(value)
    return tree is not None and is_literal(tree)
