"""Small deliberate mistakes in Python source, one at a time, chosen by a seed."""

import ast
import copy
import random
from collections.abc import Callable, Iterator

Edit = Callable[[], None]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}


def _edits_of(node: ast.AST) -> Iterator[tuple[str, Edit]]:
    match node:
        case ast.Compare(ops=[first, *_]) if type(first) in _COMPARISONS:
            yield "comparison", lambda: node.ops.__setitem__(0, _COMPARISONS[type(first)]())
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS:
            yield "operator", lambda: setattr(node, "op", _OPERATORS[type(op)]())
        case ast.BoolOp(op=op):
            yield "and/or", lambda: setattr(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.Constant(value=bool(value)):
            yield "flag", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int(value)):
            yield "constant", lambda: setattr(node, "value", value + 1)
        case ast.Constant(value=str(value)):
            yield "text", lambda: setattr(node, "value", value + "x")
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None", lambda: setattr(node, "value", ast.Constant(None))
        case ast.Call(func=ast.Name(id="range"), args=[*_, last]):
            longer = ast.BinOp(last, ast.Add(), ast.Constant(1))
            yield "off by one", lambda: node.args.__setitem__(len(node.args) - 1, longer)


def mutate(source: str, function: str, seed: str) -> tuple[str, str]:
    """Break a function by one mistake.

    Args:
        source: the module; its docstrings and annotations are left alone.
        function: name of the function to break, the last one of that name.
        seed: chooses among the possible mistakes; the same seed chooses the same one.

    Returns:
        What kind of mistake, with its line, and the broken source.

    Raises:
        ValueError: there is nothing to break.
    """
    tree = copy.deepcopy(ast.parse(source))
    target = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function][-1]
    body = [part for part in target.body if not _is_text(part)]
    edits = [(node, kind, edit) for part in body for node in ast.walk(part) for kind, edit in _edits_of(node)]
    if not edits:
        raise ValueError(f"nothing to break in {function}")
    node, kind, edit = random.Random(seed).choice(edits)
    line = getattr(node, "lineno", 0)
    edit()
    return f"{kind} in line {line}", ast.unparse(ast.fix_missing_locations(tree))


def mutants(source: str, function: str, seed: str, count: int) -> list[tuple[str, str]]:
    """Break a function in different ways, each by one mistake.

    Args:
        source: as for `mutate`.
        function: as for `mutate`.
        seed: the first mutant is the one that `mutate` gives for it.
        count: how many; fewer if there are not so many ways.
    """
    found: dict[str, str] = {}
    for number in range(20 * count):
        what, broken = mutate(source, function, f"{seed} {number}" if number else seed)
        found.setdefault(broken, what)
        if len(found) == count:
            break
    return [(what, broken) for broken, what in found.items()]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
