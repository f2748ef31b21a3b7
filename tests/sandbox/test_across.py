"""What crosses between the tests and the code: plain data exactly, and objects that behave as in one process."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflexion.sandbox import Limits, judge
from reflexion.sandbox.wire import Codec, WireError, restore

PATIENT = Limits(wall_s=40, cpu_s=20)


def no_objects(value):
    raise WireError(f"no plain data: {value!r}")


CODEC = Codec(no_objects, no_objects)

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
)
keys = st.none() | st.integers() | st.text() | st.tuples(st.integers(), st.text()) | st.frozensets(st.integers())
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.frozensets(keys)
    ),
    max_leaves=20,
)


def same(left, right):
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    return left == right and (not isinstance(left, float) or math.copysign(1, left) == math.copysign(1, right))


@given(values)
@settings(deadline=None, max_examples=40)
def test_plain_data_comes_out_as_it_went_in(value):
    assert same(CODEC.decode(CODEC.encode(value)), value)


@given(st.lists(values), st.lists(values))
@settings(deadline=None, max_examples=20)
def test_a_changed_list_is_restored_in_place(old, new):
    kept = old
    restore(old, new)
    assert kept is old
    assert same(old, new)


def test_nan_and_surrogates_cross():
    assert math.isnan(CODEC.decode(CODEC.encode(math.nan)))
    assert CODEC.decode(CODEC.encode("\ud800")) == "\ud800"


def test_what_holds_itself_is_refused():
    circle = []
    circle.append(circle)
    with pytest.raises(WireError, match="holds itself"):
        CODEC.encode(circle)


CODE = '''
import asyncio, collections, datetime, enum, functools, math
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

class EmptyError(ValueError):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code

class Stack:
    """A stack."""
    made = 0
    def __init__(self, items=()):
        self.items = list(items)
        Stack.made += 1
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        if not self.items:
            raise EmptyError("empty stack", 3)
        return self.items.pop()
    @property
    def top(self): return self.items[-1]
    @classmethod
    def of(cls, *items): return cls(items)
    @staticmethod
    def two(): return 2
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, item): return item in self.items
    def __getitem__(self, at): return self.items[at]
    def __setitem__(self, at, item): self.items[at] = item
    def __delitem__(self, at): del self.items[at]
    def __eq__(self, other): return isinstance(other, Stack) and other.items == self.items
    def __repr__(self): return f"Stack({self.items})"
    def __enter__(self): return self
    def __exit__(self, *details): return False

class Tall(Stack): pass

@dataclass(order=True)
class Point:
    x: int
    y: int
    def __add__(self, other): return Point(self.x + other.x, self.y + other.y)
    def __mul__(self, by):
        return Point(self.x * by, self.y * by) if isinstance(by, int) else self.x * by.x + self.y * by.y
    def __abs__(self): return math.hypot(self.x, self.y)

@dataclass(frozen=True)
class Frozen:
    a: int

Pair = collections.namedtuple("Pair", "a b")
class Color(enum.Enum):
    RED = 1
    BLUE = 2
class Level(enum.IntEnum):
    LOW = 1
class Items(list):
    def first(self): return self[0]
class Trie:
    def __init__(self): self.words = set()
    def add(self, word): self.words.add(word)
    def __contains__(self, word): return word in self.words

def count_to(n):
    for i in range(n): yield i
async def later(x):
    await asyncio.sleep(0.001)
    return x * 2
async def stream(n):
    for i in range(n): yield i
def words(text): return collections.Counter(text.split())
def apply(f, items): return [f(item) for item in items]
def sort_in_place(items): items.sort()
def grow(items):
    items[0].append(9)
    items.append([1])
def fill(table, kept): table["k"] = 1; kept.add(2)
def itself(value): return value
def counted(f):
    @functools.wraps(f)
    def wrapper(*args):
        wrapper.calls += 1
        return f(*args)
    wrapper.calls = 0
    return wrapper
def total(node):
    found = 0
    while node:
        found, node = found + node.value, node.next
    return found
def reverse(node):
    before = None
    while node:
        node.next, before, node = before, node, node.next
    return before
def retry(f, error):
    for _ in range(3):
        try:
            return f()
        except error as caught:
            last = caught
    raise last
def adder(n): return lambda x: x + n
def divide(a, b): return a / b
def only(a, *, b=2): return a - b
settings = {"a": 1}
def set_a(value): settings["a"] = value
def day(): return datetime.date(2020, 1, 2)
def read_all(file): return [line.strip() for line in file]
def big(): return 2 ** 10_000
def lone(): return "\\ud800"
def folder(): return Path("a") / "b"
class Box(Generic[T]):
    def __init__(self, value: T): self.value = value
def typed(x: int) -> str: return str(x)
'''

TESTS = """
import asyncio, collections, copy, dataclasses, datetime, inspect, io, math, operator, types, unittest
import pytest
from unittest.mock import Mock
from solution import Stack, EmptyError as Empty
import solution

s = Stack([1, 2])
assert len(s) == 2
assert s.pop() == 2
assert list(s) == [1]
assert 1 in s
assert 7 not in s
s.push(5).push(6)
assert s.items == [1, 5, 6]
assert (s[0], s[-1], s.top) == (1, 6, 6)
assert s[1:] == [5, 6]
s[0] = 4
del s[1]
assert s.items == [4, 6]
assert repr(s) == str(s) == f"{s}" == "Stack([4, 6])"
assert Stack([1]) == Stack([1])
assert Stack([1]) != Stack([2])
assert [Stack([1])] == [Stack([1])]
assert s != [4, 6]
assert isinstance(s, Stack)
assert isinstance(Tall(), Stack)
assert not isinstance(s, Tall)
assert issubclass(Tall, Stack)
assert type(s) is Stack
assert type(s).__name__ == "Stack"
assert Stack.of(1, 2).items == [1, 2]
assert Stack.two() == 2
assert Stack.made > 1
assert s.__doc__ == "A stack."
assert hasattr(s, "push")
assert not hasattr(s, "nothing")
assert getattr(s, "nothing", 3) == 3
s.label = "mine"
assert s.label == "mine"
with Stack() as empty:
    assert len(empty) == 0
assert not Stack()
assert copy.deepcopy(s) == s
assert copy.deepcopy(s) is not s

def test_own_errors():
    with pytest.raises(Empty) as caught:
        Stack().pop()
    assert caught.value.code == 3
    with pytest.raises(ValueError, match="empty"):
        Stack().pop()
    try:
        Stack().pop()
    except EmptyError as error:
        assert error.args == ("empty stack",)
    else:
        assert False

def test_builtin_errors():
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Frozen(1).a = 2
    with pytest.raises(TypeError):
        only(1, 2)

assert Point(1, 2) == Point(1, 2)
assert Point(1, 2) < Point(1, 3)
assert Point(1, 2) + Point(1, 1) == Point(2, 3)
assert Point(1, 2) * 2 == Point(2, 4)
assert (Point(1, 2) * 2).y == 4
assert Point(1, 2) * Point(3, 4) == 11
assert abs(Point(3, 4)) == 5.0
assert sorted([Point(2, 1), Point(1, 1)]) == [Point(1, 1), Point(2, 1)]
assert hash(Frozen(1)) == hash(Frozen(1))
assert {Frozen(1): 2}[Frozen(1)] == 2
assert Pair(1, 2) == (1, 2)
assert Pair(1, 2).b == 2
assert Color.RED.value == 1
assert Color.RED is Color.RED
assert Color(2) == Color.BLUE
assert Color["RED"].name == "RED"
assert [color.name for color in Color] == ["RED", "BLUE"]
assert Level.LOW == 1
items = Items([3, 4])
items.append(5)
assert items == [3, 4, 5]
assert items.first() == 3
assert isinstance(items, list)
trie = Trie()
trie.add("a")
assert "a" in trie
assert "b" not in trie
assert list(count_to(3)) == [0, 1, 2]
assert next(count_to(3)) == 0
assert isinstance(count_to(1), types.GeneratorType)
assert inspect.isgeneratorfunction(count_to)
assert inspect.iscoroutinefunction(later)
assert list(inspect.signature(only).parameters) == ["a", "b"]
assert asyncio.run(later(3)) == 6
async def test_async():
    assert await later(1) == 2
    assert [item async for item in stream(3)] == [0, 1, 2]
    assert await asyncio.gather(later(1), later(2)) == [2, 4]
assert words("a b a") == {"a": 2, "b": 1}
assert words("a b a").most_common(1) == [("a", 2)]
assert isinstance(words(""), collections.Counter)
assert apply(lambda x: x + 1, [1, 2]) == [2, 3]
assert apply(str, [1]) == ["1"]
assert apply(operator.neg, [1]) == [-1]
assert apply(adder(2), [1]) == [3]
assert adder(1)(2) == 3
assert callable(adder(1))
a = [3, 1]
sort_in_place(a)
assert a == [1, 3]
inner = [1]
outer = [inner]
grow(outer)
assert inner == [1, 9]
assert outer == [[1, 9], [1]]
table, kept = {}, {1}
fill(table, kept)
assert (table, kept) == ({"k": 1}, {1, 2})
assert itself(a) is a
seen = []
def note(x):
    seen.append(x)
    return x
wrapped = counted(note)
assert wrapped(4) == 4
assert (wrapped.calls, seen, wrapped.__name__) == (1, [4], "note")
mock = Mock(return_value=7)
assert apply(mock, [1]) == [7]
def test_mock():
    mock.assert_called_once_with(1)
class Node:
    def __init__(self, value, next=None):
        self.value, self.next = value, next
assert total(Node(1, Node(2))) == 3
back = reverse(Node(1, Node(2)))
assert (back.value, back.next.value, back.next.next) == (2, 1, None)
tries = 0
def flaky():
    global tries
    tries += 1
    if tries < 3:
        raise ConnectionError("again")
    return "ok"
assert retry(flaky, ConnectionError) == "ok"
class Mine(Exception):
    pass
def bad():
    raise Mine("mine")
def test_the_tests_own_error_comes_back():
    with pytest.raises(Mine, match="mine"):
        retry(bad, Mine)
assert only(5, b=1) == 4
set_a(7)
assert settings["a"] == solution.settings["a"] == 7
assert day() == datetime.date(2020, 1, 2)
assert read_all(io.StringIO("a\\nb\\n")) == ["a", "b"]
assert big() == 2 ** 10_000
assert lone() == "\\ud800"
assert divide(1, 3) == pytest.approx(0.3333333)
assert math.pi > 3
import pathlib
assert folder() == pathlib.Path("a/b")
assert Box[int](3).value == 3
assert typed.__annotations__ == {"x": int, "return": str}
class StackCase(unittest.TestCase):
    def setUp(self):
        self.s = Stack([1])
    def test_pop(self):
        self.assertEqual(self.s.pop(), 1)
    def test_empty(self):
        with self.assertRaises(EmptyError):
            Stack().pop()
"""


async def test_objects_behave_as_in_one_process():
    verdict = await judge(CODE, TESTS, limits=PATIENT)
    assert (verdict.state, verdict.message) == ("ran", "")
    assert [result for result in verdict.results if not result.passed] == []
    assert verdict.collected > 90


@pytest.mark.parametrize(
    ("code", "tests", "told"),
    [
        ("class A: pass", "class B(A): pass\nassert B()", "cannot subclass"),
        ("def f(x): return x", "import types\nassert f(types) is types", "cannot be given a module"),
        ("def f(x): return x", "a = []\na.append(a)\nassert f(a)", "holds itself"),
        ("def f():\n    a = []\n    a.append(a)\n    return a", "assert f()", "cannot be handed over"),
        ("def f(): return bytearray(80 << 20)", "assert f() is None", "handed over: out of memory"),
        ("class A:\n    def __repr__(self): raise ValueError\ndef f(): return A()", "assert f() == 3", ""),
        ("def f(x): return 1 / x", "assert f(0) == 3", "ZeroDivisionError: division by zero (line 1: def f(x)"),
        ("", "assert f(0) == 3", "NameError"),
        ("def g(): pass", "from solution import f\nassert f(0) == 3", "cannot import name 'f'"),
        ("def f(): return 1", "import numpy as np\nassert np.array(f()) == 1", "No module named 'numpy'"),
    ],
)
async def test_what_cannot_work_fails_its_test_with_a_clear_message(code, tests, told):
    verdict = await judge(code, tests, limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("ran", False)
    assert told in verdict.results[0].message
