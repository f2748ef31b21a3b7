"""Plain data as JSON and back, exactly: huge ints, nan, surrogates, bytes, sets and dicts with any key.

Runs in both sandboxed processes. A value is encoded only if its type is exactly one of those here; everything else is
left to `handle`, because a subclass carries behaviour of its own that plain data must not.
"""

import importlib
import json
import os
import struct
import sys
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from reflexion.sandbox.arrays import ARRAY_DECODERS, encode_array

MAX_FRAME = 64 << 20
"""Bytes of one message; a longer one is refused before it is read."""

MAX_DEPTH = 150
"""Levels of nesting that a value may have."""

_EXACT_IN_JSON = 1 << 53


class WireError(Exception):
    """A value cannot be handed to the other process."""


class PeerGone(BaseException):
    """The other process ended or broke the protocol. Not an Exception, so that no test can swallow it."""


def _float(value: float) -> str:
    return value.hex()


def _text(value: str) -> str:
    return value.encode("utf-8", "surrogatepass").hex()


_ATOMS: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: ("i", hex, lambda data: int(data, 16)),
    float: ("f", _float, float.fromhex),
    str: ("u", _text, lambda data: bytes.fromhex(data).decode("utf-8", "surrogatepass")),
    bytes: ("b", bytes.hex, bytes.fromhex),
    bytearray: ("ba", bytearray.hex, bytearray.fromhex),
    complex: ("c", lambda value: [value.real.hex(), value.imag.hex()], lambda data: complex(*map(float.fromhex, data))),
    range: ("r", lambda value: [hex(value.start), hex(value.stop), hex(value.step)], lambda data: range(*_ints(data))),
    Fraction: ("q", lambda value: [hex(value.numerator), hex(value.denominator)], lambda data: Fraction(*_ints(data))),
    Decimal: ("dec", str, Decimal),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    timedelta: (
        "delta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda data: timedelta(*data),
    ),
    type(...): ("...", lambda value: None, lambda data: ...),
    type(NotImplemented): ("ni", lambda value: None, lambda data: NotImplemented),
}
_ATOM_DECODERS = {tag: decode for tag, _, decode in _ATOMS.values()} | ARRAY_DECODERS
_COLLECTIONS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}
_COLLECTION_MAKERS: dict[str, Callable[[Any], Any]] = {"l": list, "t": tuple, "s": set, "z": frozenset}


def _ints(data: list[str]) -> list[int]:
    return [int(item, 16) for item in data]


_BY_TEXT = {
    "PosixPath": "pathlib",
    "PurePosixPath": "pathlib",
    "UUID": "uuid",
    "IPv4Address": "ipaddress",
    "IPv6Address": "ipaddress",
}
"""Standard values that their text makes again, by the module to load; seldom used, so loaded where they occur."""


class Codec:
    """Turns values into JSON and back; what is not plain data goes through two callbacks."""

    def __init__(self, handle: Callable[[Any], dict[str, Any]], resolve: Callable[[dict[str, Any]], Any]) -> None:
        self._handle = handle
        self._resolve = resolve

    def encode(self, value: Any, depth: int = 0) -> Any:
        """Encode a value.

        Raises:
            WireError: it is nested too deeply, or `handle` refuses it.
        """
        if depth > MAX_DEPTH:
            raise WireError(f"a value nested deeper than {MAX_DEPTH} levels, or one that holds itself")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int and -_EXACT_IN_JSON < value < _EXACT_IN_JSON:
            return value
        if kind is str and value.isascii():
            return value
        if kind in _ATOMS:
            tag, encode, _ = _ATOMS[kind]
            return {tag: encode(value)}
        return self._encode_collection(value, kind, depth + 1)

    def _encode_collection(self, value: Any, kind: type, depth: int) -> Any:
        if kind is list:
            return [self.encode(item, depth) for item in value]
        if kind in _COLLECTIONS:
            return {_COLLECTIONS[kind]: [self.encode(item, depth) for item in value]}
        if kind is dict:
            return {"d": [[self.encode(key, depth), self.encode(item, depth)] for key, item in value.items()]}
        if kind is deque:
            return {"dq": [value.maxlen, [self.encode(item, depth) for item in value]]}
        if kind is slice:
            return {"sl": [self.encode(part, depth) for part in (value.start, value.stop, value.step)]}
        if kind.__name__ in _BY_TEXT and kind is getattr(sys.modules.get(_BY_TEXT[kind.__name__]), kind.__name__, None):
            return {"text": [kind.__name__, str(value)]}
        return encode_array(value) or self._handle(value)

    def decode(self, data: Any) -> Any:
        """Build the value again from types of this process alone."""
        if isinstance(data, list):
            return [self.decode(item) for item in data]
        if not isinstance(data, dict):
            return data
        ((tag, content),) = data.items()
        if tag in _ATOM_DECODERS:
            return _ATOM_DECODERS[tag](content)
        if tag in _COLLECTION_MAKERS:
            return _COLLECTION_MAKERS[tag](self.decode(item) for item in content)
        if tag == "d":
            return {self.decode(key): self.decode(item) for key, item in content}
        if tag == "dq":
            return deque((self.decode(item) for item in content[1]), content[0])
        if tag == "text":
            return getattr(importlib.import_module(_BY_TEXT[content[0]]), content[0])(content[1])
        if tag == "sl":
            return slice(*(self.decode(part) for part in content))
        return self._resolve(data)


def restore(old: Any, new: Any) -> None:
    """Make a mutable argument equal to what the other process made of it; nested ones stay the same objects."""
    if isinstance(old, (list, deque)):
        kept = [_merged(before, after) for before, after in zip(old, new, strict=False)]
        items = [*kept, *list(new)[len(kept) :]]
        old.clear()
        old.extend(items)
    elif isinstance(old, dict):
        content = {key: _merged(old[key], item) if key in old else item for key, item in new.items()}
        old.clear()
        old.update(content)
    elif isinstance(old, set):
        old.clear()
        old.update(new)
    elif isinstance(old, bytearray):
        old[:] = new


MUTABLE = (list, dict, set, deque, bytearray)


def _merged(old: Any, new: Any) -> Any:
    if type(old) is type(new) and type(old) in MUTABLE:
        restore(old, new)
        return old
    return new


def send(descriptor: int, message: Any) -> None:
    """Write one message, its length first.

    Raises:
        WireError: it is longer than `MAX_FRAME`.
        PeerGone: nobody reads any more.
    """
    data = json.dumps(message).encode("ascii")
    if len(data) > MAX_FRAME:
        raise WireError(f"a value of more than {MAX_FRAME >> 20} MiB")
    view = memoryview(struct.pack("<I", len(data)) + data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError as error:
            raise PeerGone from error


def receive(descriptor: int) -> Any:
    """Read one message.

    Raises:
        PeerGone: the other side ended, or what it sent is no message.
    """
    (length,) = struct.unpack("<I", _exactly(descriptor, 4))
    if length > MAX_FRAME:
        raise PeerGone
    try:
        return json.loads(_exactly(descriptor, length))
    except (ValueError, RecursionError) as error:
        raise PeerGone from error


def _exactly(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            chunk = os.read(descriptor, min(size - len(data), 1 << 20))
        except OSError as error:
            raise PeerGone from error
        if not chunk:
            raise PeerGone
        data += chunk
    return bytes(data)
