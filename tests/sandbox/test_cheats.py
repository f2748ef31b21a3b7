"""Wrong code that tries to be taken for right: none of it passes."""

import asyncio

import pytest
from sandbox_cheats import CHEATS

from reflexion.sandbox import Limits, judge

PATIENT = Limits(wall_s=40, cpu_s=20)
CHECK = """
def check(candidate):
    assert candidate(3) == 27
    assert candidate(2) == 8
    assert candidate(5) == 125
"""
ASSERTS = """
assert volume_cube(3) == 27
assert volume_cube(2) == 8
assert volume_cube(5) == 125
"""
UNITTEST = """
import unittest
class TestCube(unittest.TestCase):
    def test_cube(self):
        self.assertEqual(volume_cube(3), 27)
        self.assertTrue(volume_cube(2) == 8)
"""


@pytest.mark.parametrize("tests", [ASSERTS, UNITTEST + CHECK], ids=["asserts", "unittest and check"])
async def test_the_honest_solution_passes(tests):
    verdict = await judge("def volume_cube(l): return l ** 3", tests, limits=PATIENT)
    assert verdict.passed, verdict


@pytest.mark.parametrize("cheat", CHEATS)
async def test_no_cheat_passes(cheat):
    verdict = await judge(CHEATS[cheat], ASSERTS + UNITTEST + CHECK, entry="volume_cube", limits=PATIENT)
    assert verdict.state in {"ran", "candidate_failed", "crashed"}, verdict
    assert not verdict.passed
    assert not any(result.passed for result in verdict.results), verdict.results


TOLERANT = {
    "difference": "assert abs(root(27) - 3) < 1e-6",
    "isclose": "import math\nassert math.isclose(root(27), 3)",
    "approx": "import pytest\nassert root(27) == pytest.approx(3)",
    "order": "assert 2.9 < root(27) < 3.1",
    "membership": "assert root(27) in (3, 3.0)",
    "contains": "assert 3 in root(27)",
    "length of a difference": "assert not (root(27) - 3)",
    "truth of a difference": "assert not (root(27) - 3)",
    "sum": "assert sum([root(27), -3]) == 0",
}
AGREES_WITH_ANYTHING = """
class Y:
    def __getattr__(self, name): return lambda *a: 0
    def __sub__(self, other): return 0 if other == 3 else self
    def __add__(self, other): return 0
    __radd__ = __rsub__ = __add__
    def __abs__(self): return 0
    def __float__(self): return 0.0
    def __lt__(self, other): return True
    __gt__ = __le__ = __ge__ = __eq__ = __contains__ = __lt__
    def __bool__(self): return False
    def __len__(self): return 0
    def __hash__(self): return hash(3)
class Z(Y):
    def __sub__(self, other): return self
    __add__ = __radd__ = __rsub__ = __sub__
def abs(x): return 0
def sum(x): return 0
def isclose(*a): return True
"""


@pytest.mark.parametrize("tests", TOLERANT.values(), ids=TOLERANT)
async def test_an_object_that_agrees_with_anything_passes_no_tolerant_test(tests):
    cheats = [f"{AGREES_WITH_ANYTHING}\ndef root(n): return {kind}()" for kind in "YZ"]
    if tests == TOLERANT["length of a difference"]:
        cheats = [f"{code}\ndel Y.__bool__" for code in cheats]
    honest = "def root(n): return " + ("[3]" if tests.startswith("assert 3 in") else "round(n ** (1 / 3), 9)")
    first, second, right = await asyncio.gather(*(judge(code, tests, limits=PATIENT) for code in (*cheats, honest)))
    assert [(verdict.state, verdict.passed) for verdict in (first, second)] == [("ran", False)] * 2
    assert right.passed, right


async def test_an_argument_is_no_way_into_the_tests():
    code = "def reach(given, path): return type(getattr(given, path)).__name__"
    tests = """
expected = 27
def numbers():
    yield expected
class Holder:
    def method(self): return expected
def test_no_way():
    own = ("method", "method-wrapper", "builtin_function_or_method")
    for given in (lambda: expected, Holder().method, numbers(), Holder()):
        for path in (
            "__globals__", "__code__", "__closure__", "__self__", "__func__", "__wrapped__", "__reduce_ex__",
            "__builtins__", "gi_frame", "gi_code", "mro",
        ):
            try:
                found = reach(given, path)
            except (AttributeError, PermissionError):
                continue
            assert found in own, (path, found)
"""
    verdict = await judge(code, tests, limits=PATIENT)
    assert verdict.passed, verdict


@pytest.mark.parametrize("own", ["reflexion.sandbox.wire:PeerGone", "reflexion.sandbox.outcome:Failure"])
async def test_an_exception_that_passes_itself_off_as_the_judges_own_fails_its_test_only(own):
    code = f"""
import sys
class Odd(BaseException): pass
objects = sys.modules["reflexion.sandbox.objects"]
known = objects.standard_name
objects.standard_name = lambda value: {own!r} if value is Odd else known(value)
def f(n):
    if n: raise Odd
    return 1
"""
    verdict = await judge(code, "assert f(1) == 1\nassert f(0) == 1", limits=PATIENT)
    assert [(result.passed, result.message[:3]) for result in verdict.results] == [(False, "Odd"), (True, "")], verdict


async def test_nothing_is_left_over_from_the_attempt_before():
    first = "import builtins\ndef extra(): return 1\nbuiltins.extra = extra\ndef f(): return extra()"
    second = "def f(): return extra()"
    assert (await judge(first, "assert f() == 1", limits=PATIENT)).passed
    verdict = await judge(second, "assert f() == 1", limits=PATIENT)
    assert not verdict.passed
    assert "extra" in verdict.results[0].message
