"""Finds the Python code in what a model answered."""

import ast
import re
import textwrap
from collections.abc import Iterator
from itertools import islice

from reflexion.sandbox import parse_or_none

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w.+-]*)[^\n`]*$")
_PYTHON_TAGS = {"", "py", "py3", "python", "python3"}
_STARTS = re.compile(r"^(?:async def|def|class|import|from|@)\b|^@")
_MAX_TRIES = 400
"""Stretches of unfenced prose that are tried as code."""

_RUNNERS = ("unittest.main", "pytest.main", "doctest.testmod", "check", "main_test", "run_tests")


def extract_code(answer: str) -> str:
    """Take the code out of an answer.

    The Python blocks in fences that define something, in their order, without those that a later one defines anew;
    an unclosed fence reaches to the end. Without fences the whole text if it parses, else the longest part that does.
    Tests that the answer brings (asserts outside of functions, calls of its own test functions) are taken out: the
    code is judged by the task's tests, and a wrong test of its own must not keep it from loading.

    Args:
        answer: the model's text, with prose around the code or without.

    Returns:
        Python source; as it stands in the answer, and possibly not parsing, where nothing better is found.
    """
    text = answer.replace("\r\n", "\n")
    blocks = list(_blocks(text))
    code = _from_blocks(blocks) if blocks else _unfenced(text)
    return _without_tests(code).strip("\n")


def _closers(lines: list[str], start: int, opened_by: str) -> Iterator[int]:
    for number in range(start, len(lines)):
        line = lines[number].strip()
        if line.startswith(opened_by) and not line.strip(opened_by[0]):
            yield number


def _blocks(text: str) -> Iterator[str]:
    """Give the content of each fence that may be Python."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        closers = list(islice(_closers(lines, at + 1, opening[1]), 3)) or [len(lines)]
        contents = {number: textwrap.dedent("\n".join(lines[at + 1 : number])) for number in closers}
        # A docstring may hold a fence of its own: the first closing line after which the code is whole ends it.
        end = next((number for number, content in contents.items() if parse_or_none(content) is not None), closers[0])
        if opening[2].lower() in _PYTHON_TAGS:
            yield contents[end]
        at = end + 1


def _defined(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}


def _is_preparation(tree: ast.Module) -> bool:
    """Whether a block only imports and sets names without calling anything."""
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    calls = any(isinstance(node, ast.Call) for node in ast.walk(tree))
    return bool(tree.body) and all(isinstance(node, kinds) for node in tree.body) and not calls


def _from_blocks(blocks: list[str]) -> str:
    parsed = [(block, tree) for block in blocks if (tree := parse_or_none(block)) is not None]
    defining = [(block, _defined(tree)) for block, tree in parsed if _defined(tree) or _is_preparation(tree)]
    if not any(names for _, names in defining):
        return max((block for block, _ in parsed), key=len, default=max(blocks, key=len))
    kept = [
        block
        for number, (block, names) in enumerate(defining)
        if not names or not any(names <= later for _, later in defining[number + 1 :])
    ]
    return "\n\n".join(kept)


def _unfenced(text: str) -> str:
    if parse_or_none(text) is not None:
        return text
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _STARTS.match(line)]
    tries = 0
    for start in starts:
        for end in range(len(lines), start, -1):
            tries += 1
            if tries > _MAX_TRIES:
                return text
            part = "\n".join(lines[start:end])
            tree = parse_or_none(part)
            if tree is not None and _defined(tree):
                return part
    return text


def _checkers(tree: ast.Module) -> set[str]:
    """The functions that assert something and take no arguments, whatever they are called."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not ast.unparse(node.args)
        and any(isinstance(part, ast.Assert) for part in ast.walk(node))
    }


def _is_own_test(node: ast.stmt, checkers: set[str]) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value.func)
        return called in _RUNNERS or called.startswith("test_") or called in checkers
    if isinstance(node, (ast.For, ast.With, ast.Try, ast.If)):
        inner = list(ast.walk(node))
        defines = any(isinstance(part, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)) for part in inner)
        return not defines and any(isinstance(part, ast.Assert) for part in inner)
    return False


def _without_tests(code: str) -> str:
    """Replace tests by `pass`, so that every other line keeps its number."""
    tree = parse_or_none(code)
    if tree is None:
        return code
    lines = [line.encode() for line in code.split("\n")]
    checkers = _checkers(tree)
    for node in reversed([node for node in tree.body if _is_own_test(node, checkers)]):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        kept = lines[first][: node.col_offset] + b"pass" + lines[last][node.end_col_offset :]
        lines[first : last + 1] = [kept, *[b""] * (last - first)]
    return b"\n".join(lines).decode()
