"""How objects that are no plain data are described to the other process, and what they become there.

Each object gets a number on the side that owns it. Its class goes along once: name, bases, special methods, and which
plain type, exception or standard class it descends from.
"""

import importlib
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from reflexion.sandbox import mirror, wire

PLAIN_VALUES: tuple[type, ...] = (int, float, complex, str, bytes, tuple, frozenset)
PLAIN_CONTAINERS: tuple[type, ...] = (list, dict, set)
CANDIDATE_FILE = "candidate.py"
"""The file name that the candidate's code is compiled under."""

WHERE = "__where__"
"""Where in the candidate an exception came from, kept in the exception's `__dict__`."""

_UNNAMED_TYPES = {
    kind.__name__: kind
    for kind in (
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        types.GeneratorType,
        types.AsyncGeneratorType,
        types.ModuleType,
    )
}

Policy = Callable[[Any, str, tuple[Any, ...]], None]


def standard_name(value: Any) -> str | None:
    """Give `module:name` of a public class or function of the standard library, None for anything else."""
    if any(value is kind for kind in _UNNAMED_TYPES.values()):
        return f"types:{value.__name__}"
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str) or module.split(".")[0] not in sys.stdlib_module_names:
        return None
    return f"{module}:{name}" if by_name(f"{module}:{name}") is value else None


def by_name(name: str) -> Any:
    """Find what `standard_name` named, or None; its module must be loaded already."""
    module, _, path = name.partition(":")
    if module.split(".")[0] not in sys.stdlib_module_names:  # such as our own, whose exceptions would be obeyed
        return None
    if module == "types" and path in _UNNAMED_TYPES:
        return _UNNAMED_TYPES[path]
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = None if part.startswith("_") else getattr(found, part, None)
    return found


def where(error: BaseException) -> str:
    """Give the candidate's own line that raised, as `line 3: return 1 / 0`; empty if it was not the candidate's."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == CANDIDATE_FILE]
    return f"line {lines[-1].lineno}: {lines[-1].line}"[:200] if lines else ""


class Objects:
    """The objects of this side by number, and the stand-ins for those of the other side.

    Args:
        peer: the way to the other side, for its stand-ins.
        may: raises if the other side may not do an operation on an object of this side.
        trusting: the other side may name any function and class of the standard library, to be used here.
    """

    def __init__(self, peer: mirror.Requests, may: Policy, *, trusting: bool) -> None:
        self._peer = peer
        self._may = may
        self._trusting = trusting
        self._numbers: dict[int, int] = {}
        self._owned: list[Any] = []
        self._described: set[int] = set()
        self._stand_ins: dict[int, Any] = {}
        self._classes: dict[int, type] = {}
        self._descriptions: dict[int, dict[str, Any]] = {}
        self.codec = wire.Codec(self._describe, self._resolve)

    def owned(self, number: int) -> Any:
        """Give this side's object of that number."""
        return self._owned[number]

    def number(self, value: Any) -> int:
        """Number an object of this side, which is kept from then on so that the number stays its own."""
        key = id(value)
        if key not in self._numbers:
            self._numbers[key] = len(self._owned)
            self._owned.append(value)
        return self._numbers[key]

    # -- describing

    def _describe(self, value: Any) -> dict[str, Any]:
        known = mirror.reference(value)
        if known is not None:
            return {"yours": known[1]}
        if isinstance(value, type):
            return {"class": self._class(value)}
        if isinstance(value, (types.BuiltinFunctionType, types.FunctionType)) and not self._trusting:
            name = standard_name(value)
            if name is not None:
                return {"function": name}
        self._may(value, "export", ())
        if isinstance(value, BaseException):
            return {"exception": self._exception(value)}
        if isinstance(value, types.CoroutineType) or type(value).__name__.startswith("async_generator_a"):
            return {"coroutine": self.number(value)}
        described: dict[str, Any] = {"number": self.number(value), "class": self._class(type(value))}
        for kind in PLAIN_VALUES:
            if isinstance(value, kind):
                described["value"] = self.codec.encode(kind.__new__(kind, value))
                break
        return {"object": described}

    def _exception(self, error: BaseException) -> dict[str, Any]:
        try:
            args = [self.codec.encode(value) for value in error.args]
        except Exception as trouble:  # noqa: BLE001 - the exception must get through, if only in part
            args = [f"(its arguments cannot be handed over: {trouble})"]
        return {
            "number": self.number(error),
            "class": self._class(type(error)),
            "args": args,
            "where": where(error),
        }

    def _class(self, cls: type) -> dict[str, Any]:
        known = mirror.reference(cls)
        if known is not None:
            return {"yours": known[1]}
        number = self.number(cls)
        if number in self._described:
            return {"number": number}
        self._described.add(number)
        ancestors = [name for name in map(standard_name, cls.__mro__) if name is not None]
        return {
            "number": number,
            "name": cls.__name__,
            "standard": standard_name(cls),
            "ancestors": ancestors,
            "bases": [self._class(base) for base in cls.__bases__ if standard_name(base) is None],
            "special": [name for name in sorted(mirror.SPECIAL) if getattr(cls, name, None) is not None],
        }

    # -- standing in

    def _resolve(self, data: dict[str, Any]) -> Any:
        ((tag, content),) = data.items()
        match tag:
            case "yours":
                return self._owned[content]
            case "class":
                return self._class_value(content)
            case "function" if self._trusting:
                return self._standard(content)
            case "coroutine":
                return self._remote_coroutine(content)
            case "exception":
                return self._stand_in(content, self._class_value(content["class"]))
            case "object":
                return self._stand_in(content, self._mirror(content["class"]))
        raise ValueError(f"no value of kind {tag!r}")

    async def _remote_coroutine(self, number: int) -> Any:
        return self._peer.request("await", number)

    def _stand_in(self, content: dict[str, Any], cls: type) -> Any:
        number = content["number"]
        if number in self._stand_ins:
            return self._stand_ins[number]
        if issubclass(cls, BaseException):
            args = tuple(self.codec.decode(value) for value in content.get("args", ()))
            made = cls.__new__(cls, *args)
            BaseException.__setattr__(made, "args", args)  # not the stand-in's own, which would ask the other side
            made.__dict__[WHERE] = content.get("where", "")
            if isinstance(cls, mirror.MirrorMeta):
                mirror.mark(made, number)
        else:
            made = mirror.stand_in(cls, number, (self.codec.decode(content["value"]),) if "value" in content else ())
        self._stand_ins[number] = made
        return made

    def _standard(self, name: str | None) -> Any:
        if not name:
            return None
        if self._trusting:
            importlib.import_module(name.partition(":")[0])
        return by_name(name)

    def _described_class(self, content: dict[str, Any]) -> dict[str, Any]:
        return self._descriptions.setdefault(content["number"], content)

    def _class_value(self, content: dict[str, Any]) -> Any:
        """Give a class as the tests are to see it: the real one where it is one of Python's own."""
        if "yours" in content:
            return self._owned[content["yours"]]
        name = self._described_class(content)["standard"]
        found = self._standard(name)
        if isinstance(found, type) and (self._trusting or found.__module__ == "builtins" or _is_usable_error(found)):
            return found
        return self._mirror(content)

    def _mirror(self, content: dict[str, Any]) -> type:
        if "yours" in content:
            made: type = self._owned[content["yours"]]
            return made
        described = self._described_class(content)
        number = described["number"]
        if number not in self._classes:
            ancestors = [found for found in map(self._standard, described["ancestors"]) if isinstance(found, type)]
            born = next((kind for kind in ancestors if kind in PLAIN_VALUES or _is_usable_error(kind)), None)
            container = next((kind for kind in ancestors if kind in PLAIN_CONTAINERS), None)
            bases = [self._mirror(base) for base in described["bases"]]
            self._classes[number] = mirror.mirror_class(
                self._peer,
                number,
                str(described["name"]),
                [base for base in bases if isinstance(base, mirror.MirrorMeta)] + ([born] if born else []),
                [name for name in described["special"] if name in mirror.SPECIAL],
                holds_plain=container is not None,
                appears_as=self._standard(described["standard"]) or container,
            )
        return self._classes[number]


def _is_usable_error(cls: type) -> bool:
    """Whether a test may meet this exception as itself; unittest's own would count as its verdicts."""
    return issubclass(cls, BaseException) and not cls.__module__.startswith("unittest")
