"""Arrays and scalars of numpy as plain data, where the processes may import it."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

_KINDS = "biufcmMSU"
"""Kinds of array elements that are values themselves and hold no references to objects."""


def encode_array(value: Any) -> dict[str, Any] | None:
    """Encode an array or scalar of numpy; None for anything else, subclasses and arrays of objects among it."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not getattr(numpy, type(value).__name__, None):
        return None
    if not isinstance(value, (numpy.ndarray, numpy.generic)) or value.dtype.kind not in _KINDS:
        return None
    tag = "array" if isinstance(value, numpy.ndarray) else "scalar"
    return {tag: [value.dtype.str, list(value.shape), value.tobytes().hex()]}


def _array(content: Any) -> Any:
    numpy = importlib.import_module("numpy")
    dtype, shape, data = numpy.dtype(content[0]), content[1], bytes.fromhex(content[2])
    if dtype.kind not in _KINDS:
        raise ValueError(f"no array with elements of kind {dtype.kind!r}")
    return numpy.frombuffer(data, dtype).reshape(shape).copy()


ARRAY_DECODERS: dict[str, Callable[[Any], Any]] = {"array": _array, "scalar": lambda content: _array(content)[()]}
