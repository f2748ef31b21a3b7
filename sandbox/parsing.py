"""`ast.parse`, also where several threads parse at once.

CPython 3.11 counts the depth of the trees that it builds for all threads together, and then raises SystemError or
RecursionError for source that is fine (https://github.com/python/cpython/issues/106905).
"""

import ast

_TRIES = 20


def parse(source: str) -> ast.Module:
    """Parse a module.

    Raises:
        SyntaxError: it is no Python.
        ValueError: it holds characters that no source may hold.
        RecursionError: it is nested too deeply.
        MemoryError: so deeply that the parser gives up.
    """
    for _ in range(_TRIES):
        try:
            return ast.parse(source)
        except (SystemError, RecursionError):
            continue
    return ast.parse(source)


UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What `parse` raises for source that is no Python."""


def parse_or_none(source: str) -> ast.Module | None:
    """Parse a module; None where it is no Python."""
    try:
        return parse(source)
    except UNPARSABLE:
        return None
