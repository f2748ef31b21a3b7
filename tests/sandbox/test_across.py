"""What crosses between the tests and the code: objects that behave as in one process."""

import pytest
from crossing import CODE

from reflexion.sandbox import Limits, judge

PATIENT = Limits(wall_s=40, cpu_s=20)

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
        ("def f(): return 1", "def test_f():\n    import numpy\n    assert f() == 1", "No module named 'numpy'"),
    ],
)
async def test_what_cannot_work_fails_its_test_with_a_clear_message(code, tests, told):
    verdict = await judge(code, tests, limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("ran", False)
    assert told in verdict.results[0].message
