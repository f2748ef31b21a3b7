"""Examples in a text become tests that judge as their author meant them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators import Limits, Task, TestsInvalid, UnitTests, as_tests, examples_of
from reflexion.nodes.recall import read_task

PATIENT = Limits(wall_s=40, cpu_s=20)
TASK = '''Complete this:

def half(n):
    """Half of n, as a float.

    >>> half(3)
    1.5
    >>> half(0) == 0
    >>> half(4) == 2
    True
    >>> half("x")
    Traceback (most recent call last):
      ...
    TypeError: not a number
    >>> print(half(2))
    1.0
    >>> half(2) + 1  # not a call
    2.0
    >>> Box(1)
    Box(1)
    >>> box = Box(half(2))
    >>> box.put(
    ...     half(4))
    >>> box.items
    [1.0, 2.0]
    >>> [box, 1]
    [..., 1]
    """

half(8) => 4.0
half(10) returns 5.0
it is half(10) returns nothing that Python reads
'''
RIGHT = """
class Box:
    def __init__(self, item):
        self.items = [item]
    def put(self, item):
        self.items.append(item)
    def __repr__(self):
        return f"Box({self.items[0]})"

def half(n):
    return n / 2
"""


async def judge(tests, answer):
    attempt = {"number": 1, "answer": answer, "plan": "", "style": "first"}
    return await UnitTests(PATIENT).evaluate(Task(text="", tests=tests), attempt)


async def test_a_task_is_judged_by_its_own_examples():
    tests = examples_of(TASK)
    right = await judge(tests, RIGHT)
    assert (right.score, right.feedback) == (1.0, "10 of 10 tests passed.")
    wrong = await judge(tests, RIGHT.replace("n / 2", "n // 2"))
    assert wrong.score < 1
    assert "- half(3) == 1.5: got 1, wanted 1.5" in wrong.feedback
    assert "half(3) == 1.5" in wrong.checks


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("", ""),
        ("Write add(a, b).", ""),
        (">>> x = 1\n", ""),
        (">>> f(1)\n", ""),
        (">>> f(1)\n2", "assert f(1) == 2"),
        (">>> f(1)\n{1, 2}\n>>> f(1)\n{1, 2}", "assert f(1) == {1, 2}"),
        (">>> f(1)\nFraction(1, 2)", "assert repr(f(1)) == 'Fraction(1, 2)'"),
        (">>> f(1)\n[1, ...]", ""),
        (">>> f(1)\n2\nand so on.", "assert f(1) == 2"),
        (">>> f(1)\n[1,\n2]", "assert f(1) == [1,\n2]"),
        (">>> print(f(1), 2)\n3 2", ""),
        (">>> print(f(1))\na\n<BLANKLINE>\nb", "assert str(f(1)).strip() == 'a\\n\\nb'"),
        (">>> for x in f(): x\n1", ""),
        (">>>f(1)\n2", ""),
        ('def f(x):\n    """\n    >>> f(1)\n    2"""', "assert f(1) == 2"),
        (
            ">>> f(-1)\nTraceback (most recent call last):\nm.Odd: no",
            "import pytest\nwith pytest.raises(Exception):\n    f(-1)",
        ),
        ("f(1) == 2\nf(2) should return [1]\nf(3) -> g\nnot f(1) == 2", "assert f(1) == 2\nassert f(2) == [1]"),
    ],
)
def test_what_becomes_a_test(text, tests):
    assert examples_of(text) == tests


@given(st.text() | st.text(">.()=1fx \n'\"#"))
def test_any_text_has_examples_that_parse_or_none(text):
    tests = examples_of(text)
    assert tests == "" or as_tests(tests) == tests


def test_tests_may_be_a_doctest_session_from_the_command_line_too():
    assert as_tests(">>> f(1)\n2") == "assert f(1) == 2"
    assert read_task({"task": "Write f.", "tests": ">>> f(1)\n2"})["tests"] == "assert f(1) == 2"
    assert as_tests("assert f(1) == 2\n# >>> f(1)") == "assert f(1) == 2\n# >>> f(1)"
    for nothing in ("x = 1", ">>> x = 1", "assert ("):
        with pytest.raises(TestsInvalid):
            as_tests(nothing)
