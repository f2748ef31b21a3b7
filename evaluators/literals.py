"""Expressions whose value stands in the source itself."""

import ast

from reflexion.sandbox import parse_or_none


def read_expression(source: str) -> ast.expr | None:
    """The one expression that a text is; None where it is something else."""
    tree = parse_or_none(f"({source.strip()}\n)") if source.strip() else None
    match tree:
        case ast.Module(body=[ast.Expr(value=value)]):
            return value
    return None


def is_literal(node: ast.expr) -> bool:
    """Whether it is a number, text, flag, None, or a list, tuple, set or dict of such."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
