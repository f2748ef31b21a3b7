"""Which tests a test file holds, found without running it, and the same file rewritten so that each one reports itself.

One test is: an assert outside of functions, an assert inside `check(candidate)`, a call outside of functions of a
function that asserts or is called `assert_…`, a `test_*` function, or a `test*` method of a test class. The parent
counts them and the process that runs them counts again; a test that was collected and did not report is not passed.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from reflexion.sandbox.parsing import UNPARSABLE, parse
from reflexion.sandbox.rewrite import guarded, renamed, spelled_out

Kind = Literal["statement", "function", "method", "check"]
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_RAISES = ("pytest.raises", "raises(", "pytest.warns", "self.assertRaises")
_QUIET = ("unittest.main", "pytest.main", "sys.exit", "exit", "quit", "unittest.TextTestRunner")


class TestsInvalid(ValueError):  # noqa: N818 - the name callers catch; it reads as what it says
    """The tests cannot be used: they do not parse, or there is none among them."""

    __test__ = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """One test found in the file."""

    name: str
    """The assert or call as one line of source, or the function's name."""

    kind: Kind
    target: str = ""
    """For a function, method or check: how it is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A test file, understood."""

    tests: tuple[Collected, ...]
    statements: tuple[ast.stmt, ...]
    """The file's own statements, rewritten to report to `_judge`."""

    calls_check: bool
    """The file calls `check` itself."""

    has_check: bool
    """There is a `check(candidate)`."""

    check_caller: str
    """A `test_*` function that does nothing but lead to `check`, and is no test beside it; empty for none."""

    names: frozenset[str]
    """Every name that is read anywhere in the file."""


def collect(source: str, entry: str = "candidate") -> Collection:
    """Find the tests of a file.

    Args:
        source: text of the test file.
        entry: what the parameter of `check` stands for, as test names are to show it.

    Raises:
        TestsInvalid: the text is no Python.
    """
    try:
        tree = parse(source)
    except UNPARSABLE as error:
        line = getattr(error, "lineno", None)
        at = f"line {line}: " if line else ""
        raise TestsInvalid(
            f"the tests do not parse: {at}{getattr(error, 'msg', error)}; write them as plain Python, "
            "such as `assert add(1, 2) == 3`"
        ) from error
    rewriter = _Rewriter(tree, entry)
    statements = tuple(rewriter.top_level(tree.body))
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return Collection(
        tests=tuple(rewriter.tests),
        statements=statements,
        calls_check=rewriter.calls_check,
        has_check=any(_is_check(node) for node in tree.body),
        check_caller=rewriter.check_caller,
        names=names,
    )


def check_tests(tests: str) -> int:
    """Count the tests in a text without running it.

    Raises:
        TestsInvalid: it does not parse (with the line), or holds no test.
    """
    count = len(collect(tests).tests)
    if count == 0:
        raise TestsInvalid(
            "there is no test in the text: add an assert, a function `test_…`, or `check(candidate)` with asserts"
        )
    return count


def _must_not_be_reached(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        return node.exc is not None and ast.unparse(node.exc).startswith("AssertionError")
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value


def _is_check(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1


def _calls_check(node: ast.stmt) -> bool:
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return not _asserts(node) and any(ast.unparse(call.func) == "check" for call in calls)


def _asserts(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Assert) for inner in ast.walk(node))


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _is_skipped(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(ast.unparse(mark).split("(")[0].endswith(".skip") for mark in node.decorator_list)


def _is_test_class(node: ast.ClassDef) -> bool:
    return node.name.startswith("Test") or any(ast.unparse(base).endswith("TestCase") for base in node.bases)


class _Rewriter(ast.NodeTransformer):
    """Walks the file once: where an assert is a test of its own it is guarded and numbered."""

    def __init__(self, tree: ast.Module, entry: str) -> None:
        self.tests: list[Collected] = []
        self.calls_check = False
        self._entry = entry
        self._own_test = True
        self._barred = False
        self._parameter: str | None = None
        functions = [node for node in tree.body if isinstance(node, _Function)]
        self._check = any(_is_check(node) for node in tree.body)
        tests = [node for node in functions if node.name.startswith("test")]
        self.check_caller = next((node.name for node in tests if self._check and _calls_check(node)), "")
        self._test_functions = {node.name for node in tests} - {self.check_caller}
        self._asserting = {node.name for node in functions if _asserts(node)} - self._test_functions
        self._asserting -= {"check"} if self._check else set()

    def top_level(self, body: list[ast.stmt]) -> list[ast.stmt]:
        rewritten: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.If) and _is_main_guard(node):
                rewritten += self.top_level(node.body)
                continue
            made = self.visit(node)
            rewritten += made if isinstance(made, list) else [made]
        return [ast.fix_missing_locations(node) for node in rewritten]

    def _number(self, name: str, kind: Kind = "statement", target: str = "") -> int:
        self.tests.append(Collected(name=name, kind=kind, target=target))
        return len(self.tests) - 1

    def _shown(self, node: ast.expr) -> str:
        return ast.unparse(self._renamed(node))

    def _renamed(self, node: ast.AST) -> ast.AST:
        copied = copy.deepcopy(node)
        return renamed(copied, self._parameter, self._entry) if self._parameter else copied

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        outer = self._own_test, self._parameter
        if self._own_test and _is_check(node):
            self._parameter = node.args.args[0].arg
            if not _asserts(node):
                self._number("check", "check")
        elif self._parameter is None:
            is_test = node.name.startswith("test") and node.name != self.check_caller
            if self._own_test and is_test and not _is_skipped(node):
                self._number(node.name, "function", node.name)
            self._own_test = False
        self.generic_visit(node)
        self._own_test, self._parameter = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        outer, self._own_test = self._own_test, False
        if outer and _is_test_class(node) and not _is_skipped(node):
            for method in node.body:
                if isinstance(method, _Function) and method.name.startswith("test") and not _is_skipped(method):
                    name = f"{node.name}.{method.name}"
                    self._number(name, "method", name)
        self.generic_visit(node)
        self._own_test = outer
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if not (self._own_test and isinstance(node.value, ast.Call)):
            return node
        called = ast.unparse(node.value.func)
        if called in self._test_functions or called.startswith(_QUIET):
            return ast.Pass()
        if self._check and called in ("check", self.check_caller):
            self.calls_check = True
        if called in self._asserting or called.rpartition(".")[2].startswith("assert_"):
            return guarded(self._number(self._shown(node.value)), [node])
        return node

    def _compound(self, node: ast.Try | ast.If | ast.For | ast.While) -> ast.stmt:
        """Take `try: f(-1); assert False` as one test: that assert is passed by not being reached."""
        inside = list(ast.walk(node))
        barred = [inner for inner in inside if _must_not_be_reached(inner)]
        asserts = [inner for inner in inside if isinstance(inner, ast.Assert) and inner not in barred]
        defines = any(isinstance(inner, (*_Function, ast.ClassDef)) for inner in inside)
        if barred and not defines and (isinstance(node, ast.Try) or not asserts):
            return self._whole(node)
        outer, self._barred = self._barred, self._barred or bool(barred)
        self._parts(node)
        self._barred = outer
        return node

    visit_Try = visit_If = visit_For = visit_While = _compound  # noqa: N815 - the names `NodeTransformer` calls

    def visit_With(self, node: ast.With) -> ast.stmt:
        raises = any(ast.unparse(item.context_expr).startswith(_RAISES) for item in node.items)
        return self._whole(node) if raises else self._parts(node)

    def _parts(self, node: ast.stmt) -> ast.stmt:
        self.generic_visit(node)
        return node

    def _whole(self, node: ast.stmt) -> ast.stmt:
        if not self._own_test:
            return self._parts(node)
        number = self._number(" ".join(self._shown_lines(node)))
        self._own_test = False
        self.generic_visit(node)
        self._own_test = True
        return guarded(number, [node])

    def _shown_lines(self, node: ast.stmt) -> Iterator[str]:
        lines = ast.unparse(self._renamed(node)).split("\n")
        yield from (line.strip() + ("" if line.endswith(":") or line is lines[-1] else ";") for line in lines)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | list[ast.stmt]:
        shown = f"assert {self._shown(node.test)}"
        body = spelled_out(node, shown)
        # Among other asserts it is no test, but an error of the file where it is reached.
        is_test = self._own_test and not (self._barred and _must_not_be_reached(node))
        return guarded(self._number(shown), body) if is_test else body
