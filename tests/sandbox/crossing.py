"""Code with one of each thing that tests may ask of a candidate."""

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
