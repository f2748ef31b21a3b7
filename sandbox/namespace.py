"""What the tests see of the candidate by name, and what the candidate may do with objects of the tests."""

import ast
import builtins
import importlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from reflexion.sandbox.peer import HandoverError, Peer

MODULE_OF_CANDIDATE = 0
"""The candidate's module is the first object that its process numbers."""

BUILTINS = frozenset(vars(builtins))

_NEVER_GIVEN = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType, Peer)
_WITHOUT_ATTRIBUTES = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
)
_HARMLESS_NAMES = ("__name__", "__qualname__", "__doc__")
_OTHER_LIBRARIES = ("pytest", "unittest", "hypothesis", "numpy", "pandas", "scipy", "sympy", "torch", "requests")


class Guard:
    """Lets the candidate use the objects it was given as arguments, and reach nothing else of the tests from them."""

    def __init__(self) -> None:
        self._given: dict[int, Any] = {}

    def __call__(self, value: Any, operation: str, args: tuple[Any, ...]) -> None:
        """Refuse by raising; `export` is this side handing the object over."""
        if operation == "export":
            if isinstance(value, _NEVER_GIVEN):
                raise HandoverError(f"the candidate cannot be given a {type(value).__name__}")
            self._given[id(value)] = value
            return
        of_the_tests = isinstance(value, type) and value.__module__ == "tests"
        if id(value) not in self._given and not of_the_tests:
            raise PermissionError("the tests did not hand this object over")
        if operation in ("get", "set", "del") and not (operation == "get" and args[0] in _HARMLESS_NAMES):
            name = args[0]
            foreign_error = isinstance(value, BaseException) and type(value).__module__ != "tests"
            closed = foreign_error or isinstance(value, _WITHOUT_ATTRIBUTES)
            if not isinstance(name, str) or name.startswith("_") or closed:
                raise AttributeError(f"the candidate may not reach {name!r} of an object of the tests")


class Namespace(dict[str, Any]):
    """The globals of the tests: a name they do not define is the candidate's, read anew each time it is used.

    Args:
        read: gives the candidate's value of a name, or raises KeyError.
        modules: standard modules that the candidate imports under their own name; the tests get their own.
    """

    def __init__(self, read: Callable[[str], Any], modules: Iterable[str]) -> None:
        super().__init__(__name__="tests")
        self._read = read
        self._modules = frozenset(modules) & sys.stdlib_module_names
        self._broken: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        if name in self._broken:
            raise NameError(f"{name!r} is not usable: {self._broken[name]}")
        if name in self._modules:
            return importlib.import_module(name)
        return self._read(name)

    def spoil(self, statement: ast.stmt, why: str) -> None:
        """Take away what a failed statement was to set or change, so that no test passes on a stale value."""
        changed = {
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and node.id in self and not _is_definition(self[node.id])
        }
        for name in changed | set(_bound(statement)):
            self.pop(name, None)
            self._broken[name] = why


def _is_definition(value: Any) -> bool:
    return callable(value) or isinstance(value, types.ModuleType)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Give the names that a statement sets."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in aliases)


def reader(peer: Peer, names: Iterable[str], entry: str, read_by_tests: frozenset[str]) -> Callable[[str], Any]:
    """Make the function that reads the candidate's names.

    A candidate that also defines `abs` must not decide what `abs` means in the tests. A replaced builtin is theirs
    only where it is the entry, or where the tests read no other name of the candidate and so are about it.

    Args:
        peer: the way to the candidate.
        names: what its module defines.
        entry: what `candidate` stands for; empty if the tests name what they call.
        read_by_tests: every name in the tests.
    """
    defined = frozenset(name for name in names if not name.startswith("_judge"))
    subjects = read_by_tests & defined
    replaced = frozenset((entry,)) if entry or not subjects <= BUILTINS else subjects

    known: dict[str, Any] = {}

    def read(name: str) -> Any:
        if name in known:
            return known[name]
        wanted = entry if name == "candidate" and entry and name not in defined else name
        if wanted not in defined or (wanted in BUILTINS and wanted not in replaced):
            raise KeyError(name)
        value = peer.request("get", MODULE_OF_CANDIDATE, wanted)
        if isinstance(value, (type, types.FunctionType)):
            known[name] = value  # what is defined once need not be asked for at each call
        return value

    return read


class _CandidateModule(types.ModuleType):
    """What `from solution import f` imports from."""

    def __init__(self, name: str, names: list[str], peer: Peer) -> None:
        super().__init__(name)
        self.__dict__.update({"__all__": names, "__peer": peer})

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__["__all__"]:
            raise AttributeError(f"the candidate does not define {name!r}")
        return self.__dict__["__peer"].request("get", MODULE_OF_CANDIDATE, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self.__dict__["__peer"].request("set", MODULE_OF_CANDIDATE, name, value)


def _foreign_imports(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for node in (inner for statement in statements for inner in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom):
            node.level = 0
            node.module = node.module or "candidate"
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def missing_libraries(statements: Iterable[ast.stmt], packages: Iterable[str]) -> list[str]:
    """Name the libraries that the tests cannot do without and that are not among the allowed packages."""
    imports = [statement for statement in statements if isinstance(statement, (ast.Import, ast.ImportFrom))]
    wanted = dict.fromkeys(module.partition(".")[0] for module in _foreign_imports(imports))
    there = sys.stdlib_module_names.union(packages, ("pytest",))
    return [name for name in wanted if name in _OTHER_LIBRARIES and name not in there]


def stand_in_for_imports(statements: Iterable[ast.stmt], names: list[str], peer: Peer, packages: Iterable[str]) -> None:
    """Let the candidate answer to whatever module name the tests import it by, but not to that of a package."""
    known = sys.stdlib_module_names.union(_OTHER_LIBRARIES, packages)
    public = [name for name in names if not name.startswith("_")]
    for module in _foreign_imports(statements):
        top = module.partition(".")[0]
        if top in known:
            continue
        for name in {top, module}:
            sys.modules[name] = _CandidateModule(name, public, peer)
