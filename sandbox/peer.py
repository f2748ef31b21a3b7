"""The two sandboxed processes call each other: one request at a time, and calls back while a request is under way.

A request names an operation on an object of the other side. Mutable plain arguments come back with what was done to
them, so that a function that sorts a list in place has sorted the caller's list.
"""

import contextlib
import copy
import io
import operator
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reflexion.sandbox import mirror, wire
from reflexion.sandbox.objects import PLAIN_CONTAINERS, Objects, Policy

if TYPE_CHECKING:
    import asyncio


def _is_same(left: Any, right: Any) -> bool:
    """Compare as `==` does, but not by the word of an object that equals anything."""
    return bool(left == right) and not _says_yes(operator.eq, left)


def _holds(container: Any, item: Any) -> bool:
    """Test membership, but not by the word of a container that holds anything."""
    return operator.contains(container, item) and not _says_yes(operator.contains, container)


def _says_yes(question: Callable[[Any, Any], Any], asked: Any) -> bool:
    try:
        return bool(question(asked, object()))
    except Exception:  # noqa: BLE001 - an honest object may be unable to answer about something so strange
        return False


def _plain_content(value: Any) -> Any:
    return next(kind(value) for kind in PLAIN_CONTAINERS if isinstance(value, kind))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "equal": _is_same,
    "contains": _holds,
    "__getitem__": operator.getitem,  # of classes too, as in `Box[int]`
    "plain": _plain_content,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


class HandoverError(Exception):
    """A value could not be handed to the candidate or back."""


class Peer:
    """One end of the connection.

    Args:
        reader: file descriptor to read from.
        writer: file descriptor to write to.
        may: raises if the other side may not do an operation on an object of this side.
        trusting: the other side may name anything of the standard library, to be used here.
    """

    def __init__(self, reader: int, writer: int, may: Policy, *, trusting: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._may = may
        self.objects = Objects(self, may, trusting=trusting)
        self._codec = self.objects.codec
        self._lock = threading.RLock()
        self.gone = False
        """The other process was found to be gone."""

        self._loop: asyncio.AbstractEventLoop | None = None

    def request(self, operation: str, target: int, *args: Any, **kwargs: Any) -> Any:
        """Have an operation done on the other side's object of that number.

        Raises:
            PeerGone: the other process is no longer there.
            HandoverError: an argument or the result cannot travel.
            BaseException: what the operation raised there.
        """
        passed = [*args, *kwargs.values()]
        with self._lock:
            try:
                reply = self._exchange(operation, target, passed, list(kwargs))
            except wire.PeerGone:
                self.gone = True
                raise
            if reply.get("printed"):
                sys.stdout.write(str(reply["printed"]))
            for position, state in reply.get("changed", ()):
                wire.restore(passed[position], self._codec.decode(state))
            if "untold" in reply:
                raise HandoverError(str(reply["untold"]))
            if "raised" in reply:
                raise self._codec.decode(reply["raised"])
            return passed[reply["same"]] if "same" in reply else self._codec.decode(reply["result"])

    def _exchange(self, operation: str, target: int, passed: list[Any], names: list[str]) -> dict[str, Any]:
        try:
            encoded = [self._codec.encode(value) for value in passed]
            told = sys.stdout is not sys.__stdout__
            wire.send(self._writer, {"op": operation, "on": target, "args": encoded, "names": names, "told": told})
        except wire.WireError as error:
            raise HandoverError(f"an argument cannot be handed over: {error}") from None
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        while True:
            message = wire.receive(self._reader)
            if not isinstance(message, dict):
                raise wire.PeerGone
            if "op" not in message:
                return message
            self._answer(message)

    def serve(self) -> None:
        """Answer requests until the other side is gone.

        Raises:
            PeerGone: it is.
        """
        while True:
            self._answer(wire.receive(self._reader))

    def _answer(self, message: dict[str, Any]) -> None:
        passed: list[Any] = []
        # Where the asking side has redirected its output, what is printed on its behalf belongs there.
        text = io.StringIO()
        printed = contextlib.redirect_stdout(text) if message["told"] else contextlib.nullcontext()
        try:
            passed = [self._codec.decode(value) for value in message["args"]]
            target = self.objects.owned(message["on"])
            split = len(passed) - len(message["names"])
            named = dict(zip(message["names"], passed[split:], strict=True))
            self._may(target, message["op"], tuple(passed))
            with printed:
                result = self._perform(message["op"], target, passed[:split], named)
            reply = self._result(result, passed)
        except wire.PeerGone:
            raise
        except wire.WireError as error:
            reply = {"untold": f"the result cannot be handed over: {error}"}
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who asked
            reply = self._raised(error)
        try:
            reply |= {"changed": self._changes(message["args"], passed), "printed": text.getvalue()}
            wire.send(self._writer, reply)
        except (wire.WireError, MemoryError) as error:
            wire.send(self._writer, {"untold": f"the result cannot be handed over: {str(error) or 'out of memory'}"})

    def _raised(self, error: BaseException) -> dict[str, Any]:
        try:
            return {"raised": self._codec.encode(error)}
        except Exception:  # noqa: BLE001 - an exception may be built to break whoever describes it
            return {"untold": f"{type(error).__name__} was raised, and cannot be handed over"}

    def _result(self, result: Any, passed: list[Any]) -> dict[str, Any]:
        for position, value in enumerate(passed):
            if result is value and type(value) in wire.MUTABLE:
                return {"same": position}
        return {"result": self._codec.encode(result)}

    def _changes(self, sent: list[Any], passed: list[Any]) -> list[Any]:
        now = [(at, self._codec.encode(value)) for at, value in enumerate(passed) if type(value) in wire.MUTABLE]
        return [(at, state) for at, state in now if state != sent[at]]

    def _perform(self, operation: str, target: Any, args: list[Any], named: dict[str, Any]) -> Any:
        if operation == "call":
            return target(*args, **named)
        if operation == "await":
            return self._await(target)
        if operation in _OPERATIONS:
            return _OPERATIONS[operation](target, *args)
        if operation in mirror.SPECIAL:
            return getattr(type(target), operation)(target, *args)
        raise ValueError(f"no operation {operation!r}")

    def _await(self, awaitable: Any) -> Any:
        import asyncio  # noqa: PLC0415 - a third of the start-up time, and few tests await anything

        async def waited() -> Any:
            return await awaitable

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(waited())
