"""Stand-ins for objects that live in the other process: what is read, called or compared there is asked for there.

A stand-in's class mirrors the class of the original: its name, its bases, and only the special methods it has, so
`isinstance`, `callable`, `for` and `with` behave as they would in one process. Two rules keep an object of the
candidate from answering for itself what a test asks about it:

- between a stand-in and plain data `==` is never asked for; it is false, unless the original is a list, dict, set or
  number by birth, whose plain content is fetched and compared here;
- arithmetic with plain data hands the operand over, so its result may not be turned into a number or a truth value.

For the same reason it has nothing of what numpy asks for (`__array_ufunc__` and its like): to numpy it is a sequence.
"""

from collections.abc import Callable, Generator
from typing import Any, Protocol


def _dunder(names: str) -> tuple[str, ...]:
    return tuple(f"__{name}__" for name in names.split())


BY_REQUEST = _dunder(
    "iter next reversed getitem setitem delitem enter exit aiter anext aenter aexit str repr format hash"
)
CONVERSIONS = _dunder("bool len float int index complex round abs trunc floor ceil")
ORDER = _dunder("lt le gt ge")
ARITHMETIC = _dunder(
    "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor "
    "radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand ror rxor "
    "iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor neg pos invert"
)
SPECIAL = frozenset((*BY_REQUEST, *CONVERSIONS, *ORDER, *ARITHMETIC, "__call__", "__contains__", "__await__"))
"""Special methods that a stand-in can have."""

MARK = "__mirror__"
_DERIVED = "__derived__"


class Requests(Protocol):
    """The way to the other process."""

    def request(self, operation: str, target: int, *args: Any, **kwargs: Any) -> Any:
        """Have an operation done on an object there."""


def _ask(stand_in: Any, operation: str, *args: Any, **kwargs: Any) -> Any:
    peer, number = object.__getattribute__(stand_in, MARK)
    return peer.request(operation, number, *args, **kwargs)


def _ask_class(cls: type, operation: str, *args: Any, **kwargs: Any) -> Any:
    peer, number = cls.__dict__[MARK]
    return peer.request(operation, number, *args, **kwargs)


def _refuse_to_numpy(name: str) -> None:
    if name.startswith("__array_"):
        raise AttributeError(f"{name} of the candidate's object is not asked for")


class MirrorMeta(type):
    """The class of mirrored classes: calls, class attributes and enum access go to the original class."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "MirrorMeta":
        """Make a mirrored class, but none that the tests derive from one."""
        if bases and MARK not in namespace:
            raise TypeError(f"tests cannot subclass the candidate's {bases[0].__name__}: it lives in another process")
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an instance of the original class."""
        return _ask_class(cls, "call", *args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        _refuse_to_numpy(name)
        return _ask_class(cls, "get", name)

    def __setattr__(cls, name: str, value: Any) -> None:
        _ask_class(cls, "set", name, value)

    def __iter__(cls) -> Any:
        return _ask_class(cls, "__iter__")

    def __len__(cls) -> int:
        return int(_ask_class(cls, "__len__"))

    def __getitem__(cls, key: Any) -> Any:
        return _ask_class(cls, "__getitem__", key)

    def __contains__(cls, item: Any) -> bool:
        return _ask_class(cls, "contains", item) is True

    def __bool__(cls) -> bool:
        return True


class Mirror(metaclass=MirrorMeta):
    """What every stand-in has, plain base or not."""

    def __getattr__(self, name: str) -> Any:
        _refuse_to_numpy(name)
        return _ask(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):  # such as an exception's __traceback__, which belongs to this process
            super().__setattr__(name, value)
        else:
            _ask(self, "set", name, value)

    def __delattr__(self, name: str) -> None:
        _ask(self, "del", name)

    def __copy__(self) -> Any:
        return _ask(self, "copy")

    def __deepcopy__(self, memo: Any) -> Any:
        return _ask(self, "deepcopy")


class Handle(Mirror):
    """A stand-in whose original is no plain data."""

    __mirror__ = None  # without an annotation: the originals have `__annotations__` of their own

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if isinstance(other, Mirror):
            return _ask(self, "equal", other) is True
        if type(self).__dict__.get("__plain__"):
            return bool(_ask(self, "plain") == other)
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


def _by_request(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        return _ask(self, name, *args)

    return method


def _conversion(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        if self.__dict__.get(_DERIVED):
            raise TypeError(
                f"{type(self).__name__} was computed from a value of the test: the test cannot trust {name}"
            )
        return _ask(self, name, *args)

    return method


def _order(name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        return _ask(self, name, other) if isinstance(other, Mirror) else NotImplemented

    return method


def _arithmetic(name: str) -> Callable[..., Any]:
    def method(self: Any, *operands: Any) -> Any:
        result = _ask(self, name, *operands)
        if all(isinstance(operand, Mirror) and not operand.__dict__.get(_DERIVED) for operand in (self, *operands)):
            return result
        if result is NotImplemented:
            return result
        if not isinstance(result, Handle):
            raise TypeError(
                f"{type(self).__name__}.{name} turned a value of the test into {type(result).__name__}, which the test "
                "cannot trust; return plain data instead of an object"
            )
        result.__dict__[_DERIVED] = True
        return result

    return method


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return _ask(self, "call", *args, **kwargs)


def _contains(self: Any, item: Any) -> bool:
    return _ask(self, "contains", item) is True


def _await(self: Any) -> Generator[Any, Any, Any]:
    yield from ()  # makes it the generator that `await` wants
    return _ask(self, "await")


def _methods(special: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in special:
        if name in BY_REQUEST:
            made[name] = _by_request(name)
        elif name in CONVERSIONS:
            made[name] = _conversion(name)
        elif name in ORDER:
            made[name] = _order(name)
        elif name in ARITHMETIC:
            made[name] = _arithmetic(name)
    others = {"__call__": _call, "__contains__": _contains, "__await__": _await}
    return made | {name: others[name] for name in special if name in others}


def mirror_class(
    peer: Requests,
    number: int,
    name: str,
    bases: list[type],
    special: list[str],
    *,
    holds_plain: bool = False,
    appears_as: type | None = None,
) -> type:
    """Make the class that stands for one in the other process.

    Args:
        peer: the way there.
        number: of the original class.
        name: of the original class.
        bases: stand-ins of its bases, and plain types or exceptions it is born from, which then hold the value here.
        special: names of the special methods that its instances have.
        holds_plain: it is a list, dict or set by birth; its content can be fetched and compared.
        appears_as: the standard class for which `isinstance` is to say yes.
    """
    born = [base for base in bases if not isinstance(base, MirrorMeta)]
    mirrored = [base for base in bases if isinstance(base, MirrorMeta)]
    namespace: dict[str, Any] = {MARK: (peer, number), "__plain__": holds_plain, "__module__": "candidate"}
    # What is born from a plain type behaves as that type does here: it must not answer for itself.
    namespace |= _methods([entry for entry in special if not born or entry in ("__call__", "__str__", "__repr__")])
    namespace["__doc__"] = property(lambda self: _ask(self, "get", "__doc__"))
    if appears_as is not None:
        namespace["__class__"] = property(lambda self: appears_as)
    roots = mirrored or [Mirror if born else Handle]
    try:
        return MirrorMeta(name, (*roots, *(base for base in born if not issubclass(roots[0], base))), namespace)
    except TypeError:  # bases that cannot be combined here although they could be there
        return MirrorMeta(name, (Mirror, *born[:1]) if born else (Handle,), namespace)


def stand_in(cls: type, number: int, value: tuple[Any, ...] = ()) -> Any:
    """Make the stand-in of one object; `value` is what its plain base or its exception is made from."""
    made = cls.__new__(cls, *value)
    mark(made, number)
    return made


def mark(made: Any, number: int) -> None:
    """Tie a stand-in to its original."""
    peer, _ = type(made).__dict__[MARK]
    made.__dict__[MARK] = (peer, number)


def reference(value: Any) -> tuple[Any, int] | None:
    """Name the peer and the number behind a stand-in; None for anything else."""
    if isinstance(value, MirrorMeta) or isinstance(type(value), MirrorMeta):
        found: tuple[Any, int] | None = value.__dict__.get(MARK)
        return found
    return None
