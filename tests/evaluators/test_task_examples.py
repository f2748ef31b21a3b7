"""The function a task asks for, and its examples: read where that takes no guessing, and not otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators.task_text import Example, examples, function_asked_for


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("Write rolling_max(numbers), which returns the largest number(s) so far.", "rolling_max"),
        ("Write a function called area that takes len(sides) values.", "area"),
        ("Schreibe eine Funktion `summe`, die Zahlen addiert.", "summe"),
        ("def helper(x):\n    ...\n\ndef wanted(x: int) -> int:\n    '''Calls helper(x).'''\n", "wanted"),
        ("class Stack:\n    def push(self, item): ...\n\nUse numpy.sum(values) and write flat(values).", "flat"),
        ("Give the capital(s) of France, sorted (by name) with sorted(…).", None),
        ("Write a haiku.", None),
    ],
)
def test_the_function_that_a_task_asks_for(text, function):
    assert function_asked_for(text) == function


@pytest.mark.parametrize(
    ("told", "value"),
    [
        ("f(2) == 4", "4"),
        ("`f(2)` returns `4`.", "4"),
        ("f(2) should return [1, 'a'], and f(3) none.", "[1, 'a']"),
        ("f(2) ➞ -1.5  # a comment", "-1.5"),
        ("f(2) => {'a': (1, 2)}", "{'a': (1, 2)}"),
        ("f(2) = 'x, y'; else 0", "'x, y'"),
        ("assert f(2) is None", "None"),
        (">>> f(2)\n    'ab'\n    >>> f(3)", "'ab'"),
        ("f(2) ergibt 4", "4"),
        ("f(2) == 4 and f(3) == 9", "4"),
    ],
)
def test_an_example_is_read(told, value):
    assert Example("f(2)", value) in examples(f"Write f(n).\n    {told}", "f")


@pytest.mark.parametrize(
    "told",
    [
        "f(2) returns 3 items",
        "f(2) == 5 is wrong",
        "f(2) == 2 * n",
        "f(2) == 1, 2",
        "f(2) should not return 4",
        "f(n) == 4",
        "f(2) returns a list",
        "f(2) raises ValueError: 4",
        "g.f(2) == 4",
        "f(2 == 4",
        "f(2)\n4",
        ">>> f(2)\nTraceback (most recent call last):",
        "f(2) == 4, but also f(2) == 5",
    ],
)
def test_what_would_have_to_be_guessed_is_not_read(told):
    assert examples(told, "f") == []


@given(st.text(alphabet="f(2)=4 ,.'\"\n>[]{}:`#-", max_size=60))
def test_no_text_breaks_the_reader(text):
    for example in examples(text, "f"):
        assert example.call.startswith("f(")
