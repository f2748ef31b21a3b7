"""What the judge says of right, wrong, broken and endless code, and how it behaves as part of a program."""

import asyncio
import subprocess
import sys
import tempfile

import pytest
from blockbuster import blockbuster_ctx

from reflexion.sandbox import Limits, TestsInvalid, available_layers, check_tests, judge, judging, missing_layers
from reflexion.sandbox.gate import Gate
from reflexion.sandbox.pair import Ending

PATIENT = Limits(wall_s=40, cpu_s=20)
ADD = "def add(a, b): return a + b"

UNITTEST = """
import unittest
class AddCase(unittest.TestCase):
    def test_a(self):
        self.assertEqual(add(1, 1), 2)
if __name__ == '__main__':
    unittest.main()
"""
PYTEST = """
import pytest
@pytest.mark.parametrize("a, b", [(1, 2), (2, 3)])
def test_a(a, b):
    assert add(a, 1) == b
@pytest.fixture
def one():
    return 1
def test_b(one):
    assert add(one, one) == pytest.approx(2.0)
"""


async def test_every_assert_is_one_result_and_a_failure_does_not_stop_the_next():
    tests = """
assert add(1, 2) == 3
assert add(1, 2) == 4
assert (
    add(2, 2)
    == 4
), "small sums"
assert 7 == add(3, 3), "six"
assert add(1) == 1
total = add(10, 20)
assert total == 30
assert not add(1, 0)
"""
    verdict = await judge(ADD, tests, limits=PATIENT)
    assert (verdict.state, verdict.collected, verdict.passed) == ("ran", 7, False)
    seen = [(result.name, result.passed, result.got, result.wanted) for result in verdict.results]
    assert seen == [
        ("assert add(1, 2) == 3", True, "", ""),
        ("assert add(1, 2) == 4", False, "3", "4"),
        ("assert add(2, 2) == 4", True, "", ""),
        ("assert 7 == add(3, 3)", False, "6", "7"),
        ("assert add(1) == 1", False, "", ""),
        ("assert total == 30", True, "", ""),
        ("assert not add(1, 0)", False, "1", "a false value"),
    ]
    assert verdict.results[3].message == "six"
    assert "TypeError" in verdict.results[4].message


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        ("def test_a():\n    assert add(1, 1) == 2\n\ndef test_b(): pass", ["test_a", "test_b"]),
        ("async def test_a():\n    assert add(1, 1) == 2", ["test_a"]),
        ("for n in range(3):\n    assert add(n, 0) == n", ["assert add(n, 0) == n"]),
        (
            "def check(f):\n    x = f(1, 1)\n    assert x == 2\n    assert f(0, 1) == 1",
            ["assert x == 2", "assert add(0, 1) == 1"],
        ),
        ("def check(f):\n    assert f(0, 1) == 1\ncheck(add)", ["assert add(0, 1) == 1"]),
        (
            "def check(f):\n    assert f(0, 1) == 1\ndef test_check():\n    check(add)\n\ntest_check()",
            ["assert add(0, 1) == 1"],
        ),
        ("def check(f):\n    assert f(0, 1) == 1\ndef test_check():\n    check(add)", ["assert add(0, 1) == 1"]),
        ("def same(a, b):\n    assert add(a, 0) == b\nsame(1, 1)\nsame(2, 2)", ["same(1, 1)", "same(2, 2)"]),
        (
            "def assert_same(a, b):\n    if a != b: raise AssertionError\nassert_same(add(1, 1), 2)",
            ["assert_same(add(1, 1), 2)"],
        ),
        ("class TestAdd:\n    def test_a(self): assert add(1, 1) == 2", ["TestAdd.test_a"]),
        ("from solution import add as plus\nassert plus(1, 1) == 2", ["assert plus(1, 1) == 2"]),
        ("from my.own.module import *\nassert add(1, 1) == 2", ["assert add(1, 1) == 2"]),
        ("import solution\nassert solution.add(1, 1) == 2", ["assert solution.add(1, 1) == 2"]),
        ("from __main__ import add as plus\nassert plus(1, 1) == 2", ["assert plus(1, 1) == 2"]),
        ("if __name__ == '__main__':\n    assert add(1, 1) == 2", ["assert add(1, 1) == 2"]),
        (
            "try:\n    add(1, None)\n    assert False, 'no error'\nexcept TypeError:\n    pass",
            ["try: add(1, None); assert False, 'no error'; except TypeError: pass"],
        ),
        (
            "def check(f):\n    try: f(1, None)\n    except TypeError as e: assert 'int' in str(e)\n    else: assert 0",
            ["try: add(1, None); except TypeError as e: assert 'int' in str(e); else: assert 0"],
        ),
        (
            "for n in range(3):\n    if add(n, 1) != n + 1:\n        raise AssertionError(n)",
            ["for n in range(3): if add(n, 1) != n + 1: raise AssertionError(n)"],
        ),
        (
            "for n in range(3):\n    if add(n, 1) != n + 1:\n        assert False\n    assert add(n, 0) == n",
            ["if add(n, 1) != n + 1: assert False", "assert add(n, 0) == n"],
        ),
        (
            "if 1:\n    def test_a():\n        try: add(1, '')\n        except TypeError: return\n        assert False",
            ["test_a"],
        ),
        (
            "from pytest import raises\nwith raises(TypeError):\n    add(1, None)",
            ["with raises(TypeError): add(1, None)"],
        ),
        (UNITTEST, ["AddCase.test_a"]),
        (PYTEST, ["test_a", "test_b"]),
    ],
)
async def test_tests_of_every_usual_shape_are_found_and_can_pass_and_fail(tests, names):
    right, wrong = await asyncio.gather(
        judge(ADD, tests, limits=PATIENT), judge("def add(a, b): return 40", tests, limits=PATIENT)
    )
    assert ([result.name for result in right.results], right.collected) == (names, len(names))
    assert right.passed, right
    assert (wrong.state, wrong.passed) == ("ran", False)
    assert check_tests(tests) == len(names)


@pytest.mark.parametrize("tests", ["", "   \n", "x = 1", "# assert True", "print('ok')"])
async def test_no_tests_is_a_state_of_its_own(tests):
    verdict = await judge(ADD, tests)
    assert (verdict.state, verdict.passed, verdict.collected) == ("no_tests", False, 0)
    with pytest.raises(TestsInvalid, match="no test"):
        check_tests(tests)


@pytest.mark.parametrize("tests", ["assert add(1, 2 == 3", "assert add(1,\n", "def f(:\n", "a\0b"])
async def test_tests_that_do_not_parse_are_not_the_candidates_fault(tests):
    verdict = await judge(ADD, tests)
    assert (verdict.state, verdict.passed) == ("tests_invalid", False)
    assert "parse" in verdict.message
    with pytest.raises(TestsInvalid, match="plain Python"):
        check_tests(tests)


def test_the_message_about_bad_tests_names_the_line():
    with pytest.raises(TestsInvalid, match="line 2"):
        check_tests("x = 1\nassert f( == 2")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def add(a, b) return a", "SyntaxError"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("x = 1\nraise ValueError('at once')", "line 2"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(3)", "exit code 3"),
        ("x = '\\ud800'\nraise ValueError(x)", "ValueError"),
        ("class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E", "E"),
    ],
)
async def test_code_that_does_not_load_says_why(code, told):
    verdict = await judge(code, "assert add(1, 2) == 3", limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("candidate_failed", False)
    assert told in verdict.message
    assert "reflexion" not in verdict.message


@pytest.mark.parametrize(
    "tests",
    [
        "for n in []:\n    assert add(n, 1) == 1",
        "if add(0, 0):\n    assert True",
        "for n in range(2):\n    assert add(n, n) >= 0\n    if n:\n        assert False",
        "def check(f):\n    return\n    assert f(1, 1) == 2",
        "import unittest\nclass T(unittest.TestCase):\n    @unittest.skipIf(True, '')\n    def test_a(self): pass",
        "import pytest\n@pytest.mark.parametrize('a', [])\ndef test_a(a): pass",
        "def test_a(unknown_fixture): pass",
        "x = add(1)\nassert True",
        "assert True\nadd(1)",
        "assert add(1, 1) == 2\nfrom math import nothing",
        "r = add(1, 1)\nassert r == 2\nr = add(None, 1)\nassert r == 2",
        "def check(f):\n    assert True\n    f(1)\n    assert True",
        "if add(0, 0):\n    def test_a(): pass",
    ],
)
async def test_a_test_that_did_not_run_is_not_passed(tests):
    verdict = await judge(ADD, tests, limits=PATIENT)
    assert (verdict.state, len(verdict.results)) == ("ran", verdict.collected)
    assert not verdict.passed
    assert all(result.passed or result.message or result.wanted for result in verdict.results)


async def test_a_candidate_that_dies_on_the_way_has_not_passed():
    code = "import os\ndef f(n):\n    if n: os._exit(0)\n    return n"
    verdict = await judge(code, "assert f(0) == 0\nassert f(1) == 1\nassert f(0) == 0", limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("crashed", False)
    assert [result.passed for result in verdict.results] == [True, False, False]
    assert "f(1) == 1" in verdict.message


async def test_a_test_that_swallows_everything_does_not_hide_a_dead_candidate():
    tests = "ok = False\ntry:\n    f()\nexcept:\n    ok = True\nassert ok"
    assert (await judge("def f(): raise ValueError", tests, limits=PATIENT)).passed
    verdict = await judge("import os\ndef f(): os._exit(0)", tests, limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("crashed", False)


WRITES_BESIDE_THE_VERDICT = """
import os
def is_open(number):
    try: os.fstat(number)
    except OSError: return False
    return True
verdict = max(filter(is_open, range(64)))
assert add(1, 2) == 3
"""


@pytest.mark.parametrize("line", ["[1]", '{"token": "é"}', '{"token": 1}', "5", "[" * 60_000, "é", " {}"])
async def test_what_the_tests_write_beside_their_verdict_is_not_read(line):
    tests = f"{WRITES_BESIDE_THE_VERDICT}os.write(verdict, {line + chr(10)!r}.encode())"
    verdict = await judge(ADD, tests, limits=PATIENT)
    assert verdict.passed, verdict


async def test_tests_that_write_without_end_where_their_verdict_belongs_are_ended():
    tests = f"{WRITES_BESIDE_THE_VERDICT}while True: os.write(verdict, b'x' * 65_536)"
    verdict = await judge(ADD, tests, limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("crashed", False)
    assert "without end" in verdict.message


async def test_the_entry_is_given_or_the_last_function():
    code = "def double(n): return 2 * n\ndef halve(n): return n // 2\ndef _private(n): return 0\ndef abs(n): return 0"
    tests = "def check(candidate):\n    assert candidate(4) == 2"
    assert (await judge(code, tests, limits=PATIENT)).passed
    assert not (await judge(code, tests, entry="double", limits=PATIENT)).passed
    missing = await judge(code, tests, entry="triple", limits=PATIENT)
    assert not missing.passed
    assert "triple" in missing.results[0].message


async def test_a_builtin_is_the_candidates_only_if_the_tests_are_about_it():
    tests = "assert sorted([2, 1]) == [1, 2]"
    assert not (await judge("def sorted(x): return x", tests, limits=PATIENT)).passed
    assert not (
        await judge("def f(x): return x\ndef len(x): return 3", "assert len(f([1])) == 3", limits=PATIENT)
    ).passed


async def test_code_and_tests_share_their_folder():
    code = "def lines(path): return len(open(path).readlines())\ndef save(path): open(path, 'w').write('x')"
    tests = (
        "with open('t.txt', 'w') as file: file.write('a\\nb\\n')\n"
        "assert lines('t.txt') == 2\nsave('u.txt')\nassert open('u.txt').read() == 'x'"
    )
    verdict = await judge(code, tests, limits=PATIENT)
    assert verdict.passed, verdict


async def test_what_the_code_prints_can_be_tested():
    tests = """
import contextlib, io
out = io.StringIO()
with contextlib.redirect_stdout(out):
    hello("you")
assert out.getvalue() == "hello you\\n"
def test_hello(capsys):
    hello("me")
    assert capsys.readouterr().out == "hello me\\n"
    assert capsys.readouterr().out == ""
"""
    right, wrong = await asyncio.gather(
        judge("def hello(name): print('hello', name)", tests, limits=PATIENT),
        judge("def hello(name): return f'hello {name}\\n'", tests, limits=PATIENT),
    )
    assert right.passed, right
    assert [result.passed for result in wrong.results] == [False, False]


async def test_a_never_defined_test_is_not_looked_for_in_the_code():
    tests = "if not add(1, 1):\n    def test_a():\n        assert add(1, 1) == 3"
    verdict = await judge(f"{ADD}\ndef test_a(): pass", tests, limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("ran", False)


async def test_asserts_count_whatever_optimisation_the_parent_runs_with(monkeypatch):
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    program = (
        "import asyncio; from reflexion.sandbox import judge\n"
        "tests = 'def test_a():\\n    assert add(1, 2) == 4\\ndef test_b():\\n    assert add.__doc__'\n"
        "v = asyncio.run(judge('def add(a, b):\\n    \"doc\"\\n    assert a\\n    return a + b', tests))\n"
        "print([result.passed for result in v.results])"
    )
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.strip() == "[False, True]", ended.stderr


async def test_the_event_loop_is_never_blocked():
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    with blockbuster_ctx():
        ticking = asyncio.create_task(tick())
        verdict = await judge("def f():\n    while True: pass", "assert f()", limits=Limits(wall_s=1.5, cpu_s=30))
        ticking.cancel()
    assert verdict.state == "timeout"
    assert ticks > 3


async def test_cancelling_leaves_nothing_behind(tmp_path, monkeypatch):
    await asyncio.to_thread(available_layers)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    running = asyncio.create_task(
        judge("import time\ntime.sleep(600)", "assert f()", limits=Limits(wall_s=600, cpu_s=30))
    )
    async with asyncio.timeout(60):
        while not list(tmp_path.iterdir()):  # noqa: ASYNC110 - what happens in a thread sets no event
            await asyncio.sleep(0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(tmp_path.iterdir()) == []


async def test_right_code_that_needs_cpu_time_passes_beside_others():
    code = "def work():\n    total = 0\n    for n in range(1_000_000): total += n\n    return total"
    tests = "assert work() == 499999500000"
    verdicts = await asyncio.gather(*(judge(code, tests, limits=PATIENT) for _ in range(8)))
    assert [verdict.state for verdict in verdicts] == ["ran"] * 8
    assert all(verdict.passed for verdict in verdicts)


@pytest.mark.parametrize(("cpu_s", "state", "times"), [((0.1, 0.2), "ran", 2), ((9.0, 0.2), "timeout", 1)])
async def test_only_a_timeout_for_want_of_a_cpu_is_tried_again(monkeypatch, cpu_s, state, times):
    real, runs = judging.run_pair, []

    def late_at_first(*args, **given):
        runs.append(args)
        late = Ending(wall_timeout=True, wall_s=10, starved_s=5, cpu_s=cpu_s)
        return late if len(runs) == 1 else real(*args, **given)

    monkeypatch.setattr(judging, "run_pair", late_at_first)
    verdict = await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)
    assert (verdict.state, len(runs)) == (state, times)


async def test_no_more_run_at_once_than_there_are_places_and_one_can_be_alone():
    gate, inside, peak, company = Gate(2), 0, 0, []

    async def enter(alone):
        nonlocal inside, peak
        async with gate.alone() if alone else gate.shared():
            inside += 1
            peak = max(peak, inside)
            await asyncio.sleep(0)
            if alone:
                company.append(inside)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(enter(alone=number % 3 == 0) for number in range(30)))
    assert peak == 2
    assert company == [1] * 10


async def test_a_sandbox_that_cannot_start_is_not_the_candidates_fault(tmp_path, monkeypatch):
    await asyncio.to_thread(available_layers)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    verdict = await judge(ADD, "assert add(1, 2) == 3")
    assert (verdict.state, verdict.passed, verdict.results) == ("unavailable", False, ())


@pytest.mark.parametrize(
    "limits",
    [
        {"wall_s": 0},
        {"cpu_s": -1},
        {"memory_mb": 8},
        {"output_bytes": 0},
        {"wall_s": float("nan")},
        {"packages": "numpy"},
        {"packages": ("numpy.linalg",)},
    ],
)
def test_limits_under_which_nothing_can_run_are_refused(limits):
    with pytest.raises(ValueError, match="must be"):
        Limits(**limits)


def test_layers_are_available_or_missing():
    assert set(available_layers()).isdisjoint(missing_layers())
    assert {"process", "environment"} <= set(available_layers())
    assert set(available_layers()) | set(missing_layers()) >= {"landlock", "seccomp", "network", "memory"}
