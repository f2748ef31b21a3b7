"""A run whose model writes the tests: what it pays, what it shows, and what it does not conclude."""

import pytest
from broken_off import CODE, Child
from loop_bench import GOOD, Bench

from reflexion.testing import Reply

TESTS = "assert double(2) == 4\nassert double(5) == 10\nassert double('a') == 'aa'\nassert double(2) is not None"
WRONG = f"{TESTS}\nassert double(3) == 7"
RIGHT, SAME, BAD = (f"def double(n):\n    return {value}" for value in ("n * 2", "n + n", "n * 3"))


@pytest.fixture
def tested(bench):
    """A bench whose critic's model writes tests."""
    bench.server.default("critic-m", TESTS)
    bench.server.default("actor-m", RIGHT)
    return bench


def agent(bench: Bench, **settings):
    given = {"generate_tests": True, "threshold": 1, "test_timeout_s": 60}
    return bench.agent(**given | settings)


async def test_tests_are_written_once_and_judge_every_attempt(tested):
    tested.server.script("actor-m", BAD, BAD + " + 1", RIGHT)
    async with agent(tested) as running:
        result = await running.run(CODE)
    assert [attempt.passed for attempt in result.attempts] == [False, False, True]
    assert tested.counts() == {"actor": 3, "critic": 1, "reflector": 2, "planner": 2}
    assert result.usage.by_role["evaluator"].requests == 1
    assert "double(2) == 4" in tested.prompt("actor", 1)
    assert "got 6, wanted 4" in tested.prompt("reflector", 0)


async def test_passing_them_shows_their_origin_and_teaches_nothing(tested):
    tested.server.script("actor-m", BAD, RIGHT)
    async with agent(tested) as running:
        result = await running.run(CODE)
        assert await running.persistence.store.asearch(("reflexion", "lessons")) == []
    assert (result.passed, result.advisory, result.lessons_learned) == (True, True, ())
    assert result.stop_detail == "attempt 2 scored 1.00 of at least 1.00 (advisory, by generated_tests)"
    assert result.attempts[1].feedback == "Passed 3 of 3 tests that the model wrote itself, 1 rejected."
    assert {attempt.evaluator for attempt in result.attempts} == {"generated_tests"}
    *kept, weak = result.as_json()["own_tests"]
    assert [(test["origin"], test["rejected"]) for test in kept] == [("model", "")] * 3
    assert (weak["source"], bool(weak["rejected"])) == ("assert double(2) is not None", True)


async def test_a_test_against_which_attempts_agree_costs_neither_of_them_its_pass(tested):
    tested.server.default("critic-m", WRONG)
    tested.server.script("actor-m", RIGHT, SAME)
    async with agent(tested) as running:
        result = await running.run(CODE)
    assert (result.passed, result.answer) == (True, RIGHT)
    assert [attempt.score for attempt in result.attempts] == [1, 1]
    assert "double(3) == 7" in tested.prompt("actor", 1)
    assert result.own_tests[-1]["rejected"] == "2 different attempts agree on 6"


async def test_the_next_attempt_is_no_longer_asked_for_what_was_rejected(tested):
    tested.server.default("critic-m", f"{WRONG}\nassert double(None) == 0")
    tested.server.script("actor-m", RIGHT, SAME, f"{RIGHT} if n is not None else 0")
    async with agent(tested) as running:
        result = await running.run(CODE)
    assert [attempt.passed for attempt in result.attempts] == [False, False, True]
    assert "double(3) == 7" in tested.prompt("actor", 1)
    assert "double(3) == 7" not in tested.prompt("actor", 2)
    assert "double(None) == 0" in tested.prompt("actor", 2)


async def test_a_repeated_answer_is_scored_anew_with_the_one_it_repeats(tested):
    tested.server.default("critic-m", f"{WRONG}\nassert double(None) == 0")
    tested.server.script("actor-m", RIGHT, RIGHT, SAME)
    async with agent(tested) as running:
        result = await running.run(CODE)
    assert [attempt.score for attempt in result.attempts] == [pytest.approx(3 / 4)] * 3
    assert all("double(3)" not in attempt.feedback for attempt in result.attempts)


async def test_an_earlier_attempt_may_turn_out_to_have_passed(tested):
    tested.server.default("critic-m", WRONG)
    tested.server.script("actor-m", RIGHT, "def double(n):\n    return n * 2 if n != 5 else 11")
    async with agent(tested) as running:
        result = await running.run(CODE)
    assert [attempt.passed for attempt in result.attempts] == [True, False]
    assert (result.stop_reason, result.passed, result.answer) == ("passed", True, RIGHT)
    assert result.stop_detail.startswith("attempt 1 scored 1.00")


@pytest.mark.parametrize(
    ("task", "reply", "requests", "why"),
    [
        (CODE, "assert double(2) is not None", 2, "none of the tests that the model wrote can be used"),
        (CODE, "I would rather not.", 2, "none of the tests that the model wrote can be used"),
        (CODE, Reply(None, refusal="No."), 2, "the model wrote none"),
        ("Write a haiku.", GOOD, 1, "the task names no function"),
    ],
)
async def test_without_a_usable_test_a_critic_judges_and_the_reason_is_told(bench, task, reply, requests, why):
    bench.server.script("critic-m", reply)
    bench.server.default("critic-m", GOOD)
    async with agent(bench, threshold=0.8) as running:
        result = await running.run(task)
    assert (result.passed, result.attempts[0].evaluator) == (True, "critic")
    assert why in result.attempts[0].feedback
    assert bench.counts()["critic"] == requests
    assert ("Python code block" in bench.prompt("actor", 0)) == (task == CODE)


async def test_the_examples_of_the_task_judge_where_the_model_writes_nothing(bench):
    bench.server.default("critic-m", Reply(None, refusal="No."))
    bench.server.default("actor-m", RIGHT)
    async with agent(bench) as running:
        result = await running.run(f"{CODE} For example, double(2) == 4 and double('a') == 'aa'.")
    assert (result.passed, result.attempts[0].evaluator) == (True, "generated_tests")
    assert result.attempts[0].feedback == (
        "Passed 2 of 2 examples of the task; no test that the model wrote itself, 0 rejected."
    )


async def test_that_there_are_none_is_found_out_once(bench):
    bench.server.script("critic-m", "I would rather not.")
    async with agent(bench, max_attempts=2) as running:
        await running.run(CODE)
    assert bench.counts()["critic"] == 3


async def test_criteria_are_judged_only_where_all_tests_pass(tested):
    tested.server.script("critic-m", TESTS)
    tested.server.default("critic-m", GOOD)
    tested.server.script("actor-m", BAD, RIGHT)
    async with agent(tested, threshold=0.8) as running:
        result = await running.run(CODE, criteria=["it is short"])
    assert [attempt.evaluator for attempt in result.attempts] == ["generated_tests", "critic"]
    assert tested.counts()["critic"] == 2


@pytest.mark.parametrize(
    ("given", "evaluator"), [({"tests": "assert double(2) == 4"}, "unit_tests"), ({"expect": RIGHT}, "match")]
)
async def test_what_the_user_gives_goes_before(tested, given, evaluator):
    async with agent(tested) as running:
        result = await running.run(CODE, **given)
    assert (result.attempts[0].evaluator, result.advisory, result.own_tests) == (evaluator, False, ())
    assert tested.counts()["critic"] == 0


async def test_another_run_on_the_thread_writes_its_own(tested):
    async with agent(tested) as running:
        await running.run(CODE, thread="t")
        tested.server.default("critic-m", "assert triple(2) == 6\nassert triple(0) == 0")
        tested.server.default("actor-m", "def triple(n):\n    return n * 3")
        result = await running.run("Write triple(n).", thread="t")
    assert (result.passed, tested.counts()["critic"]) == (True, 2)
    assert [test["source"] for test in result.own_tests] == ["assert triple(2) == 6", "assert triple(0) == 0"]


@pytest.mark.parametrize(("node", "critic"), [("critic", 2), ("reflector", 1), ("planner", 1)])
def test_a_killed_run_does_not_pay_for_its_tests_again(tested, node, critic):
    tested.server.script("actor-m", BAD)
    tested.server.hold(f"{node}-m")
    child = Child(tested.server.base_url, tested.url, "t", "", "code")
    try:
        tested.server.wait_for(f"{node}-m", timeout_s=60)
    finally:
        child.kill()
    tested.server.release(f"{node}-m")
    result = Child(tested.server.base_url, tested.url, "t", "", "code").says()
    assert [attempt["score"] for attempt in result["attempts"]] == [0, 1]
    assert tested.counts() == {"actor": 2, "critic": critic, "reflector": 1, "planner": 1} | (
        {node: 2} if node != "critic" else {}
    )
    assert result["usage"]["requests"] == tested.server.count
