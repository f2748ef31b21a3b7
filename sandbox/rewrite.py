"""Statements of a test file, written so that each test reports to `_judge` how it went."""

import ast
from typing import cast

from reflexion.sandbox.parsing import parse

_SWAPPED = {"Eq", "Is"}


def guarded(number: int, body: list[ast.stmt]) -> ast.stmt:
    """Write a test as a statement that reports its outcome and never raises."""
    made = parse(
        f"try:\n    _judge.begin({number})\n    _judge.passed({number})\n"
        f"except BaseException as _judge_error:\n    _judge.failed({number}, _judge_error)"
    ).body[0]
    guard = cast("ast.Try", made)
    guard.body[1:1] = body
    return guard


def spelled_out(node: ast.Assert, shown: str) -> list[ast.stmt]:
    """Write an assert as statements that keep both sides, to say what came out and what was wanted."""
    test, message = node.test, node.msg or ast.Constant(None)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sides = [("_judge_left", test.left), ("_judge_right", test.comparators[0])]
        compared = ast.Compare(_read("_judge_left"), test.ops, [_read("_judge_right")])
        operator = type(test.ops[0]).__name__
        values = ["_judge_left", "_judge_right"]
        constant = [isinstance(side, ast.Constant) for _, side in sides]
        if operator in _SWAPPED and constant == [True, False]:  # as in `3 == f(1)`
            values.reverse()
        condition: ast.expr = compared
    else:
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        sides = [("_judge_left", cast("ast.UnaryOp", test).operand if negated else test)]
        operator, values = ("false" if negated else "true"), ["_judge_left"]
        condition = ast.UnaryOp(ast.Not(), _read("_judge_left")) if negated else _read("_judge_left")
    failure = ast.Call(
        ast.Attribute(_read("_judge"), "failure", ast.Load()),
        [ast.Constant(shown), ast.Constant(operator), message, *(_read(name) for name in values)],
        [],
    )
    statements: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], value) for name, value in sides]
    statements.append(ast.If(ast.UnaryOp(ast.Not(), condition), [ast.Raise(failure)], []))
    return [ast.copy_location(statement, node) for statement in statements]


class _Renamed(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new, node.ctx) if node.id == self._old else node


def renamed(tree: ast.AST, old: str, new: str) -> ast.AST:
    """Let each use of a name be one of another; changes the tree."""
    made: ast.AST = _Renamed(old, new).visit(tree)
    return made


def _read(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
