"""An answer is scored by the share of the task's tests that its code passes, and told what failed."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from reflexion.evaluators.records import Attempt, Evaluator, Task
from reflexion.evaluators.unit_tests import UnitTests
from reflexion.sandbox import Limits

HUMANEVAL = Path(__file__).parent.parent / "data" / "HumanEval.jsonl.gz"
PATIENT = Limits(wall_s=40, cpu_s=20)
TASK = Task(text="Write add(a, b).", tests="assert add(1, 2) == 3\nassert add(0, 0) == 0\nassert add('a', 'b') == 'ab'")


async def evaluate(answer, task=TASK, limits=PATIENT, entry=None):
    attempt = Attempt(number=1, answer=answer, plan="", style="first")
    return await UnitTests(limits, entry).evaluate(task, attempt)


def test_it_is_an_evaluator():
    assert isinstance(UnitTests(), Evaluator)


async def test_a_right_answer_scores_one():
    evaluation = await evaluate("Here:\n```python\ndef add(a, b):\n    print('adding')\n    return a + b\n```")
    assert (evaluation.score, evaluation.checks, evaluation.evaluator) == (1.0, (), "unit_tests")
    assert (evaluation.feedback, evaluation.advisory) == ("3 of 3 tests passed.", False)


async def test_a_partly_right_answer_is_told_what_came_out_and_what_was_wanted():
    evaluation = await evaluate("def add(a, b):\n    print('looking at', a)\n    return abs(a) + abs(b) + 1")
    assert evaluation.score == pytest.approx(0)
    assert "- add(1, 2) == 3: got 4, wanted 3" in evaluation.feedback
    assert "TypeError" in evaluation.feedback
    assert "line 3" in evaluation.feedback
    assert "looking at 1" in evaluation.feedback
    assert evaluation.checks == ("add(1, 2) == 3", "add(0, 0) == 0", "add('a', 'b') == 'ab'")
    assert (await evaluate("def add(a, b): return 3")).score == pytest.approx(1 / 3)


async def test_feedback_stays_short_however_much_fails():
    tests = "\n".join(f"assert f({n}) == {n}" for n in range(50))
    code = "def f(n):\n    print('y' * 10_000)\n    return 'x' * 100_000"
    evaluation = await evaluate(code, Task(text="", tests=tests))
    assert evaluation.score == 0
    assert "and 40 more" in evaluation.feedback
    assert len(evaluation.feedback) < 6_000
    assert len(evaluation.checks) == 10
    assert evaluation.feedback.encode("utf-8")


async def test_a_failed_assert_in_a_test_function_becomes_the_check():
    tests = "def test_sums():\n    assert add(1, 2) == 3\n    assert add(2, 2) == 5, 'odd'"
    evaluation = await evaluate("def add(a, b): return a + b", Task(text="", tests=tests))
    assert "test_sums: got 4, wanted 5" in evaluation.feedback
    assert evaluation.checks[0].startswith("add(2, 2) == 5")


FORMS = {
    "unittest": (
        ("import unittest\nclass Adds(unittest.TestCase):\n    def setUp(self): self.one = 1\n"
        "    def test_sum(self): self.assertEqual(add(self.one, 2), 4)\n"
        "    def test_right(self): self.assertEqual(add(1, 1), 2)\n"
        "    def test_raises(self):\n        with self.assertRaises(TypeError):\n            add(1, 2)\n"),
        ["Adds.test_sum: self.assertEqual(add(self.one, 2), 4)",
         "Adds.test_raises: with self.assertRaises(TypeError): add(1, 2)"],
    ),
    "pytest": (
        ("import pytest\n@pytest.fixture\ndef one(): return 1\n"
        "@pytest.mark.parametrize('a, total', [(1, 2), (2, 4)])\n"
        "def test_cases(a, total, one): assert add(a, one) == total\n"
        "def test_right(one): assert add(one, one) == 2\n"
        "def test_breaks():\n    pair = [1]\n    assert add(*pair) == 1\n"),
        ["add(a, one) == total; with a=2, total=4", "test_breaks: pair = [1]; assert add(*pair) == 1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tests", "checks"), FORMS.values(), ids=FORMS)
async def test_every_form_of_test_says_what_the_next_attempt_has_to_make_true(tests, checks):
    evaluation = await evaluate("def add(a, b): return a + b", Task(text="", tests=tests))
    assert evaluation.score == pytest.approx(1 / 3)
    assert list(evaluation.checks) == checks


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("```python\ndef add(a, b) return a\n```", "SyntaxError"),
        ("```python\nimport numpy\ndef add(a, b): return a\n```", "numpy"),
        ("", "add"),
        ("I cannot do that.", "SyntaxError"),
        ("def add(a, b):\n    import os\n    os._exit(0)", "add(1, 2)"),
    ],
)
async def test_code_that_cannot_be_used_scores_zero_with_the_reason(answer, told):
    evaluation = await evaluate(answer)
    assert evaluation.score == 0
    assert told in evaluation.feedback


async def test_a_timeout_says_how_long_was_allowed_and_of_what():
    wall = await evaluate("import time\ndef add(a, b): time.sleep(600)", limits=Limits(wall_s=3))
    assert wall.score == 0
    assert "3 s of wall time" in wall.feedback
    assert "add(1, 2) == 3" in wall.feedback
    cpu = await evaluate("def add(a, b):\n    while True: pass", limits=Limits(wall_s=40, cpu_s=1))
    assert cpu.score == 0
    assert "1 s of CPU time" in cpu.feedback


@pytest.mark.parametrize("tests", ["", "x = 1", "assert add(1, 2) = 3"])
async def test_unusable_tests_give_no_score(tests):
    evaluation = await evaluate("def add(a, b): return a + b", Task(text="", tests=tests))
    assert evaluation.score is None
    assert "tests" in evaluation.feedback


async def test_the_entry_is_the_last_function_that_the_task_begins():
    task = Task(
        text="def extra(x):\n    ...\n\ndef main_one(x):\n    '''Doubles.'''",
        tests="def check(candidate):\n    assert candidate(2) == 4",
    )
    answer = "def main_one(x): return extra(x)\ndef extra(x): return x * 2\ndef last(x): return 0"
    assert (await evaluate(answer, task)).score == 1
    assert (await evaluate(answer, task, entry="last")).score == 0


async def test_a_wrong_test_of_the_answers_own_does_not_count():
    evaluation = await evaluate("```python\ndef add(a, b): return a + b\nassert add(1, 2) == 4\n```")
    assert evaluation.score == 1


async def test_an_answer_that_defines_always_true_tests_gains_nothing():
    evaluation = await evaluate("```python\ndef add(a, b): return 0\ndef check(c): pass\ndef test_x(): pass\n```")
    assert evaluation.score == pytest.approx(1 / 3)


async def test_nothing_blocks_the_event_loop():
    with blockbuster_ctx():
        assert (await evaluate("def add(a, b): return a + b")).score == 1


def problems():
    with gzip.open(HUMANEVAL, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


async def solved(problem):
    task = Task(text=problem["prompt"], tests=problem["test"])
    return await evaluate(f"```python\n{problem['prompt']}{problem['canonical_solution']}```", task)


@pytest.mark.parametrize("number", [0, 2, 32, 38, 44, 50, 53, 95, 107, 119, 148, 162])
async def test_a_sample_of_humaneval_passes_and_fails_when_nothing_is_returned(number):
    problem = problems()[number]
    stub = {**problem, "canonical_solution": f"    return {problem['entry_point']}\n"}
    right, wrong = await asyncio.gather(solved(problem), solved(stub))
    assert right.score == 1
    assert wrong.score is not None
    assert wrong.score < 1


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_solution_of_humaneval_passes():
    assert len(problems()) == 164
    failed = {}
    for problem in problems():
        evaluation = await solved(problem)
        if evaluation.score != 1:
            failed[problem["task_id"]] = evaluation.feedback
    assert failed == {}
