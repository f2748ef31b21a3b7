"""The part of pytest that small test files use, for tests that `import pytest` where nothing is installed."""

import inspect
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from types import SimpleNamespace
from typing import Any

from reflexion.sandbox.wire import PeerGone

__all__ = ["approx", "fail", "fixture", "main", "mark", "param", "raises", "skip"]

_fixtures: dict[str, Callable[..., Any]] = {}


class _Capture:
    """The fixture `capsys`: what the tests and the code print."""

    def __init__(self) -> None:
        self._out = io.StringIO()

    @contextmanager
    def running(self) -> Iterator["_Capture"]:
        with redirect_stdout(self._out):
            yield self

    def readouterr(self) -> SimpleNamespace:
        out = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return SimpleNamespace(out=out, err="")


class Failed(AssertionError):  # noqa: N818 - as pytest calls it
    """`pytest.fail`, or `pytest.raises` around something that did not raise."""


@contextmanager
def raises(
    expected: type[BaseException] | tuple[type[BaseException], ...], *, match: str | None = None
) -> Iterator[SimpleNamespace]:
    """Pass if the block raises the expected exception, whose text `match` is searched in."""
    caught = SimpleNamespace(value=None, type=None)
    try:
        yield caught
    except PeerGone:
        raise
    except expected as error:
        caught.value, caught.type = error, type(error)
        if match is not None and not re.search(match, str(error)):
            raise Failed(f"the message {str(error)!r} does not match {match!r}") from error
        return
    raise Failed(f"did not raise {getattr(expected, '__name__', expected)}")


class _Approx:
    def __init__(self, expected: Any, rel: float | None, abs_: float | None, *, nan_ok: bool) -> None:
        self.expected = expected
        self._settings = (rel, abs_, nan_ok)
        self._rel, self._abs, self._nan_ok = (1e-6 if rel is None and abs_ is None else rel or 0.0), abs_, nan_ok

    def _nested(self, expected: Any) -> "_Approx":
        rel, abs_, nan_ok = self._settings
        return _Approx(expected, rel, abs_, nan_ok=nan_ok)

    def __eq__(self, other: object) -> bool:
        wanted: Any = self.expected
        if isinstance(wanted, Mapping):
            return isinstance(other, Mapping) and {key: self._nested(item) for key, item in wanted.items()} == other
        if isinstance(wanted, Sequence) and not isinstance(wanted, str):
            return (
                isinstance(other, Sequence)
                and len(other) == len(wanted)
                and all(self._nested(item) == found for item, found in zip(wanted, other, strict=True))
            )
        if isinstance(other, (int, float)) and isinstance(wanted, (int, float)):
            if math.isnan(wanted):
                return self._nan_ok and math.isnan(other)
            return math.isclose(wanted, other, rel_tol=self._rel, abs_tol=1e-12 if self._abs is None else self._abs)
        return type(other) is type(wanted) and bool(other == wanted)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"


def approx(expected: Any, rel: float | None = None, abs: float | None = None, *, nan_ok: bool = False) -> Any:  # noqa: A002
    """Compare numbers, and lists, tuples and dicts of them, with a tolerance (relative 1e-6, absolute 1e-12)."""
    return _Approx(expected, rel, abs, nan_ok=nan_ok)


def fixture(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Register a fixture; it is made anew for each test."""
    if function is None:
        return fixture
    _fixtures[function.__name__] = function
    return function


def param(*values: Any, **_: Any) -> Any:
    """Wrap the values of one case."""
    return values if len(values) > 1 else values[0]


def fail(reason: str = "") -> None:
    """Fail the test."""
    raise Failed(reason)


def skip(reason: str = "", **_: Any) -> None:
    """End the test without a verdict, which is no pass."""
    raise Failed(f"skipped: {reason}")


def main(*_: Any, **__: Any) -> int:
    """Do nothing: the tests are run by the judge."""
    return 0


class _Mark:
    def parametrize(self, names: str | Sequence[str], cases: Iterable[Any], **_: Any) -> Callable[[Any], Any]:
        split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        made = [dict(zip(split, case if len(split) > 1 else [case], strict=True)) for case in cases]

        def decorate(function: Any) -> Any:
            outer = getattr(function, "reflexion_cases", [{}])
            function.reflexion_cases = [{**one, **other} for one in made for other in outer]
            return function

        return decorate

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **_: args[0] if args and callable(args[0]) else lambda function: function


mark = _Mark()


def calls(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give each call that a test function stands for: one, or one for each parametrised case.

    Yields:
        What tells the case apart, and the call without arguments.
    """
    for case in getattr(function, "reflexion_cases", [{}]):
        label = ", ".join(f"{name}={value!r}" for name, value in case.items())
        yield label, lambda case=case: _with_fixtures(function, case)  # type: ignore[misc]


def _with_fixtures(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    with ExitStack() as stack:
        return function(**_arguments(function, given, stack))


def _arguments(function: Callable[..., Any], given: dict[str, Any], stack: ExitStack) -> dict[str, Any]:
    arguments = dict(given)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in arguments or parameter.default is not parameter.empty:
            continue
        if name == "capsys":
            arguments[name] = stack.enter_context(_Capture().running())
            continue
        if name not in _fixtures:
            raise Failed(f"needs a fixture {name!r}, which the test file does not define")
        maker = _fixtures[name]
        made = maker(**_arguments(maker, {}, stack))
        arguments[name] = (
            stack.enter_context(contextmanager(lambda made=made: made)()) if inspect.isgenerator(made) else made
        )
    return arguments
