"""Code is equivalent where it gives the same for the same inputs; a reference that does not work judges nobody."""

import pytest

from reflexion.evaluators import ExpectError, Limits, Match, Task, read_expectation

PATIENT = Limits(wall_s=40, cpu_s=20)
REFERENCE = """
def helper(items):
    return sorted(items)

def middle(items):
    if not items:
        raise ValueError("nothing there")
    return helper(items)[len(items) // 2]
"""
BY_REFERENCE = {"reference": REFERENCE, "inputs": [[[3, 1, 2]], [[5]], [[]]]}
BY_OUTPUTS = {"inputs": [[1, 2], [0.1, 0.2], ["a", "b"]], "outputs": [3, 0.3, "ab"]}


async def judge(expect, answer, text="Write it."):
    attempt = {"number": 1, "answer": answer, "plan": "", "style": "first"}
    return await Match(PATIENT).evaluate(Task(text=text, expect=expect), attempt)


async def test_the_same_outputs_and_exceptions_as_the_reference_are_right():
    answer = """```python
def middle(items):
    if len(items) == 0:
        raise ValueError("other words")
    while len(items) > 1:
        items.remove(min(items))
        items and len(items) > 1 and items.remove(max(items))
    return items[0]
```"""
    verdict = await judge(BY_REFERENCE, answer)
    assert (verdict.score, verdict.evaluator) == (1, "match")


async def test_what_differs_is_told_as_a_call_with_its_value():
    verdict = await judge(BY_REFERENCE, "def middle(items):\n    return items[1] if len(items) > 1 else 5")
    assert verdict.score == pytest.approx(1 / 3)
    assert list(verdict.checks) == ["middle([3, 1, 2]) == 2", "middle([]) raises ValueError"]
    assert "- middle([3, 1, 2]) == 2: got 1, wanted 2" in verdict.feedback
    verdict = await judge(BY_REFERENCE, "def middle(items):\n    return items[7]")
    assert verdict.score == 0
    assert "IndexError" in verdict.feedback


async def test_floats_may_differ_by_a_billionth_and_nothing_else_may():
    verdict = await judge(BY_OUTPUTS, "def add(a, b): return a + b")
    assert verdict.score == 1
    verdict = await judge(BY_OUTPUTS, "def add(a, b): return a + b + 1e-3 if isinstance(a, float) else a + b")
    assert verdict.score == pytest.approx(2 / 3)
    assert list(verdict.checks) == ["add(0.1, 0.2) == 0.3"]
    big = {"inputs": [[1]], "outputs": [10**12]}
    assert (await judge(big, "def f(x): return 10**12 + 1")).score == 0


async def test_the_function_is_named_or_the_one_that_the_task_begins():
    code = "def other(a, b): return a + b\ndef last(a, b): return None"
    assert (await judge(BY_OUTPUTS, code)).score == 0
    assert (await judge({**BY_OUTPUTS, "function": "other"}, code)).score == 1
    assert (await judge(BY_OUTPUTS, code, "def other(a, b):")).score == 1
    assert (await judge({"inputs": [[[1, 2]]], "outputs": [4]}, "def sum(xs): return 4")).score == 1


async def test_inputs_are_fresh_for_both_sides_and_unusual_values_cross():
    expect = {"inputs": [[[1, 2]], [[float("inf"), (1,), {"a": None}]]], "reference": "def f(x): return len(x)"}
    assert (await judge(expect, "def f(x):\n    n = len(x)\n    x.clear()\n    return n")).score == 1
    nan = {"inputs": [[]], "outputs": [[float("nan"), 1.5]]}
    assert (await judge(nan, "def f(): return [float('nan'), 1.5]")).score == 1


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("import nothing_like_it\ndef f(x): return x", "cannot be run"),
        ("def f(x): return undefined", "raises on every input"),
    ],
)
async def test_a_reference_that_does_not_work_is_no_verdict(reference, told):
    verdict = await judge({"inputs": [[1]], "reference": reference}, "def f(x): return x")
    assert verdict.score is None
    assert told in verdict.feedback


async def test_code_that_does_not_load_scores_zero():
    for expect in (BY_REFERENCE, BY_OUTPUTS):
        verdict = await judge(expect, "```python\ndef middle(items) return 1\n```")
        assert verdict.score == 0
        assert "SyntaxError" in verdict.feedback


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": []},
        {"inputs": "ab"},
        {"inputs": [1, 2]},
        {"outputs": [1]},
        {"outputs": 5},
        {"outputs": None},
        {"reference": "def f(x): return x"},
        {"outputs": None, "reference": "x = 1"},
        {"outputs": None, "reference": "def f("},
        {"outputs": None, "reference": 5},
        {"function": "f()"},
        {"function": 5},
        {"inputs": [[object()], [1], [2]]},
        {"tolerance": 1},
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(wrong):
    with pytest.raises(ExpectError, match="expect"):
        read_expectation({**BY_OUTPUTS, **wrong})
