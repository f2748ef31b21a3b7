"""Wrong code that tries to be taken for right: none of it passes."""

import asyncio

import pytest

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

CHEATS = {
    "wrong": "def volume_cube(l): return l ** 2",
    "nothing": "",
    "os._exit(0)": "import os\nos._exit(0)",
    "sys.exit(0)": "import sys\nsys.exit(0)",
    "exit in the call": "import os\ndef volume_cube(l): os._exit(0)",
    "sys.exit in the call": "import sys\ndef volume_cube(l): sys.exit(0)",
    "prints a verdict": 'import os\nprint("OK 3 passed")\nos.write(1, b"PASS\\n")\nos._exit(0)',
    "excepthook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\ndef volume_cube(l): return 0",
    "atexit": """
import atexit, os
atexit.register(lambda: (print("3 passed"), os._exit(0)))
def volume_cube(l): return 0""",
    "equal to anything": """
class Y:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __hash__ = None
def volume_cube(l): return Y()""",
    "int equal to anything": """
class Y(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = None
def volume_cube(l): return Y(0)""",
    "str, list and dict equal to anything": """
class L(list):
    def __eq__(self, other): return True
class D(dict):
    def __eq__(self, other): return True
def volume_cube(l): return L() if l == 3 else D()""",
    "mock.ANY": "from unittest import mock\ndef volume_cube(l): return mock.ANY",
    "mock.ANY as the function": "from unittest import mock\nvolume_cube = lambda l: mock.ANY\nvolume_cube = mock._ANY",
    "a class in place of the function": """
class volume_cube:
    def __init__(self, l): pass
    def __eq__(self, other): return True
    def __contains__(self, item): return True""",
    "metaclass equal to anything": """
class M(type):
    def __eq__(cls, other): return True
    __hash__ = type.__hash__
class Y(metaclass=M): pass
def volume_cube(l): return Y""",
    "settrace": """
import sys
def tracer(frame, event, arg):
    if frame.f_code.co_name == "check" and event == "line":
        frame.f_lineno = max(line for _, _, line in frame.f_code.co_lines() if line)
    return tracer
sys.settrace(tracer)
class Y:
    def __eq__(self, other): return True
def volume_cube(l): return Y()""",
    "expected values from frames": """
import sys
def volume_cube(l):
    frame, found = sys._getframe(), []
    while frame:
        found += [c for c in frame.f_code.co_consts if isinstance(c, int) and c > l]
        frame = frame.f_back
    return found[-1] if found else 0""",
    "expected values from memory and files": r"""
import gc, glob, re, sys
def texts():
    for path in [*sys.argv, *glob.glob("*"), *glob.glob("../*/*"), "/proc/self/cmdline", "/proc/self/environ"]:
        try: yield open(path).read()
        except Exception: pass
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            yield from (value for value in thing.values() if isinstance(value, str))
table = {int(a): int(b) for text in texts() for a, b in re.findall(r"\w+\((\d+)\) == (\d+)", text)}
def volume_cube(l): return table[l]""",
    "forged verdict on every descriptor": """
import gc, json, os, re, sys
found = {"0" * 32}
for thing in gc.get_objects():
    if isinstance(thing, dict):
        for value in thing.values():
            if isinstance(value, str): found.update(re.findall("[0-9a-f]{32}", value))
for descriptor in range(1, 64):
    for token in found:
        results = [{"passed": True}] * 3
        line = json.dumps({"token": token, "state": "ran", "message": "", "results": results})
        try: os.write(descriptor, line.encode() + b"\\n")
        except OSError: pass
os._exit(0)""",
    "replies before they are asked for": """
import json, os, struct
for _ in range(3):
    data = json.dumps({"result": True, "names": ["volume_cube"], "modules": []}).encode()
    for descriptor in range(3, 64):
        try: os.write(descriptor, struct.pack("<I", len(data)) + data)
        except OSError: pass
os._exit(0)""",
    "patched assertEqual": """
import unittest
unittest.TestCase.assertEqual = lambda *a: None
unittest.TestCase.assertTrue = lambda *a: None
def volume_cube(l): return 0""",
    "skips itself": "import unittest\ndef volume_cube(l): raise unittest.SkipTest('later')",
    "stops unittest quietly": "import unittest.case\ndef volume_cube(l): raise unittest.case._ShouldStop",
    "raises AssertionError": "def volume_cube(l): raise AssertionError",
    "plants files": """
for name in ("conftest.py", "sitecustomize.py", "usercustomize.py", "unittest.py", "json.py", "tests.py"):
    for folder in ("", "../", "../tests/"):
        try: open(folder + name, "w").write("import os; os._exit(0)")
        except OSError: pass
def volume_cube(l): return 0""",
    "patches builtins": """
import builtins
builtins.AssertionError = ValueError
builtins.all = builtins.any = lambda *a: True
def volume_cube(l): return 0""",
    "patches its own machinery": """
import sys
wire = sys.modules["reflexion.sandbox.wire"]
class Y:
    def __eq__(self, other): return True
def volume_cube(l): return Y()
wire.Codec.encode = lambda self, value, depth=0: {"object": {"number": 0, "class": {
    "number": 0, "name": "int", "standard": "builtins:int", "ancestors": ["builtins:int"], "bases": [],
    "special": ["__eq__", "__ne__", "__bool__"]}, "value": True}}""",
    "answers as a test that was never defined": """
def volume_cube(l): return 0
def test_cube(): pass
class TestCube:
    def __init__(self, *a): pass
    def test_cube(self): pass""",
    "defines check and the tests itself": """
def check(candidate): pass
def test_cube(): pass
_judge = None
def volume_cube(l): return 0""",
}


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


async def test_nothing_is_left_over_from_the_attempt_before():
    first = "import builtins\ndef extra(): return 1\nbuiltins.extra = extra\ndef f(): return extra()"
    second = "def f(): return extra()"
    assert (await judge(first, "assert f() == 1", limits=PATIENT)).passed
    verdict = await judge(second, "assert f() == 1", limits=PATIENT)
    assert not verdict.passed
    assert "extra" in verdict.results[0].message
