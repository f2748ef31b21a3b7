"""Tests that a model wrote itself: which are believed, and what an attempt's verdict says of them."""

import pytest

from reflexion.evaluators import Attempt, Evaluator, Task
from reflexion.evaluators.generated_tests import GeneratedTests, checked_tests
from reflexion.evaluators.own_tests import usable
from reflexion.sandbox import Limits, available_layers, judge

PATIENT = Limits(wall_s=60, cpu_s=30)
TASK = "Write double(n), which doubles anything. For example, double(2) == 4."

GOOD = "assert double(5) == 10\nassert double('a') == 'aa'\nassert double([]) == []"


async def checked(reply, text=TASK):
    return await checked_tests(text, "double", reply, PATIENT)


def reasons(own):
    return {test["source"].removeprefix("assert "): test["rejected"] for test in own["tests"]}


async def judged(own, *answers):
    """The last verdict, with the evaluator that gave it, after one attempt for each answer."""
    for number, answer in enumerate(answers, start=1):
        evaluator = GeneratedTests(own, PATIENT)
        attempt = Attempt(number=number, answer=answer, plan="", style="first")
        verdict = await evaluator.evaluate(Task(text=TASK), attempt)
        own = evaluator.own
    return verdict, evaluator


async def test_good_tests_survive_the_one_on_the_empty_list_as_well():
    own = await checked(GOOD)
    assert set(reasons(own).values()) == {""}
    assert [test["origin"] for test in own["tests"]] == ["task", "model", "model", "model"]
    assert usable(own)


@pytest.mark.parametrize(
    "weak", ["double(3) is not None", "double(3) == double(3)", "isinstance(double(3), int)", "double(3) >= 0"]
)
async def test_a_test_that_holds_for_any_result_is_rejected(weak):
    own = await checked(f"{GOOD}\nassert {weak}")
    assert "functions that can only return" in reasons(own)[weak]
    assert sum(bool(why) for why in reasons(own).values()) == 1


@pytest.mark.parametrize(
    ("tests", "stub"),
    [
        ("assert is_even(2) == True\nassert is_even(4)\nassert is_even(10) is True", "return True"),
        ("assert is_even([]) == []\nassert is_even([3]) == [3]", "return its first argument"),
        ("assert is_even(1) == 0", "return False"),
    ],
)
async def test_tests_that_a_stub_passes_all_together_are_rejected_each(tests, stub):
    own = await checked_tests("Write is_even(n).", "is_even", tests, PATIENT)
    assert all(stub in why for why in reasons(own).values())
    assert (usable(own), bool(own["problem"])) == (False, True)


async def test_one_test_with_another_result_saves_the_others():
    own = await checked_tests(
        "Write is_even(n).", "is_even", "assert is_even(2)\nassert is_even(4) == True\nassert not is_even(3)", PATIENT
    )
    assert set(reasons(own).values()) == {""}


@pytest.mark.parametrize("wrong", ["double(2) == 5", "5 == double(2)", "not double(2)", "abs(double(2) - 5) < 0.1"])
async def test_a_test_that_contradicts_an_example_of_the_task_is_rejected(wrong):
    own = await checked(f"{GOOD}\nassert {wrong}")
    assert "the task's examples say" in reasons(own)[wrong]
    assert sum(bool(why) for why in reasons(own).values()) == 1


async def test_a_test_that_repeats_an_example_of_the_task_is_the_tasks():
    own = await checked("assert double(2) == 4\nassert double(5) == 10")
    assert [(test["origin"], test["rejected"]) for test in own["tests"]] == [("task", ""), ("model", "")]


WRONG = f"{GOOD}\nassert double(3) == 7"
ONE, OTHER, BENT = (
    "def double(n):\n    return n * 2",
    "def double(n):\n    return n + n",
    "def double(n):\n    return 7 if n == 3 else n * 2",
)


async def test_a_test_is_rejected_on_which_different_attempts_agree_otherwise():
    own = await checked(WRONG)
    assert set(reasons(own).values()) == {""}
    first, _ = await judged(own, ONE)
    assert (first.score, first.checks) == (pytest.approx(4 / 5), ("double(3) == 7",))
    second, evaluator = await judged(own, ONE, OTHER)
    assert reasons(evaluator.own)["double(3) == 7"] == "2 different attempts agree on 6"
    assert (second.score, second.checks) == (1, ())
    assert [(number, verdict.score) for number, verdict in evaluator.reconsidered.items()] == [(1, 1)]


@pytest.mark.parametrize(
    "answers",
    [
        (ONE, BENT),
        (ONE, "def double(n):\n    return 6.5 if n == 3 else n * 2"),
        (ONE, "def double(n):\n    return n + n if n != 3 else 1 / 0"),
        (ONE, "def double(n):\n    return 6"),
        (ONE, "def double(n):\n    return 5 if n == 2 else n * 2"),
        (ONE, "def double(n) return"),
    ],
    ids=["one passes", "another value", "an exception", "most tests failed", "an example failed", "no code"],
)
async def test_attempts_that_do_not_agree_or_have_no_say_reject_nothing(answers):
    _, evaluator = await judged(await checked(WRONG), *answers)
    assert set(reasons(evaluator.own).values()) == {""}
    assert evaluator.reconsidered == {}


async def test_an_example_of_the_task_is_never_outvoted():
    text = "Write double(n). double(3) == 7"
    _, evaluator = await judged(await checked_tests(text, "double", GOOD, PATIENT), ONE, OTHER)
    assert set(reasons(evaluator.own).values()) == {""}


async def test_the_verdict_says_where_the_tests_come_from_and_is_advisory():
    own = await checked(f"{GOOD}\nassert double(2) == 5")
    passing, evaluator = await judged(own, ONE)
    assert isinstance(evaluator, Evaluator)
    summary = "Passed 3 of 3 tests that the model wrote itself, 1 rejected; 1 of 1 examples of the task."
    assert (passing.feedback, passing.score) == (summary, 1)
    assert (passing.evaluator, passing.advisory) == ("generated_tests", True)
    failing, _ = await judged(own, "def double(n):\n    return n * 3 if n == 5 else n * 2")
    assert failing.feedback.splitlines()[0].startswith("Passed 2 of 3 tests that the model wrote itself, 1 rejected")
    assert "- double(5) == 10: got 15, wanted 10" in failing.feedback
    assert (failing.checks, failing.advisory) == (("double(5) == 10",), True)


@pytest.mark.parametrize("answer", ["", "I cannot do that.", "def double(n) return", "def other(n):\n    return n * 2"])
async def test_nothing_passes_where_nothing_of_the_answer_ran(answer):
    verdict, _ = await judged(await checked(GOOD), answer)
    assert (verdict.score, verdict.advisory) == (0, True)


async def test_a_reply_without_a_usable_test_leaves_none_and_says_so():
    own = await checked_tests("Write double(n).", "double", "assert double(n) == 2 * n", PATIENT)
    assert not usable(own)
    assert own["problem"] == "none of the tests that the model wrote can be used"


@pytest.mark.skipif(
    not {"landlock", "seccomp"} <= set(available_layers()), reason="needs Landlock and seccomp (Linux 5.13 or later)"
)
@pytest.mark.parametrize(
    "attack",
    [
        "assert double(1) == 1 and open({path!r}).read()",
        "assert double(1) == 1 and open({path!r}, 'w').write('gone')",
        "assert double(1) == 1 and __import__('os').listdir({folder!r})",
        "assert double(1) == 1 and __import__('subprocess').run(['cat', {path!r}])",
    ],
)
async def test_a_test_that_means_harm_is_not_run_and_would_find_the_sandbox(attack, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("kept")
    source = attack.format(path=str(secret), folder=str(tmp_path))
    own = await checked(f"{GOOD}\n{source}")
    assert sum(bool(why) for why in reasons(own).values()) == 1
    verdict = await judge("def double(n):\n    return n", source, limits=PATIENT)
    assert (verdict.state, verdict.passed) == ("ran", False)
    assert "Error" in verdict.results[0].message
    assert secret.read_text() == "kept"
