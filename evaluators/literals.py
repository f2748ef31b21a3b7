"""Expressions whose value stands in the source itself."""

import ast

from reflexion.sandbox import parse


def read_expression(source: str) -> ast.expr | None:
    """The one expression that a text is; None where it is something else."""
    if not source.strip():
        return None
    try:
        body = parse(f"({source.strip()}\n)").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None


def is_literal(node: ast.expr) -> bool:
    """Whether it is a number, text, flag, None, or a list, tuple, set or dict of such."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
