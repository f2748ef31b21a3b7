"""Every reason of the closed list, reached in a run: the best attempt comes back and nothing is paid for in vain."""

import asyncio
import time
from decimal import Decimal
from importlib import import_module
from typing import get_args

import pytest
from loop_bench import BAD, GOOD, Bench
from loop_time import leap

from reflexion.evaluators import Evaluation
from reflexion.nodes import StopReason
from reflexion.testing import Reply, prompt_tokens


def request_tokens(request):
    """Prompt and reply: the budget may be overshot by less than one call, as prompts are estimated by their length."""
    return prompt_tokens(request.body) + 64


def scores(server, *values):
    server.script("critic-m", *({"score": value} for value in values))


async def run(bench: Bench, task="Sum a list.", *, own=None, url=None, connection=None, given=None, **settings):
    async with bench.agent(url, own=own, connection=connection, **settings) as agent:
        return await agent.run(task, **given or {})


def test_this_file_reaches_the_whole_list():
    tested = set(REACHED)
    assert tested == set(get_args(StopReason))


REACHED = {
    "passed": "test_passed",
    "max_attempts": "test_max_attempts_returns_the_best_attempt_not_the_last",
    "plateau": "test_plateau_by_patience",
    "budget": "test_a_budget_in_tokens",
    "deadline": "test_a_deadline_ends_the_call_in_flight",
    "evaluator_failed": "test_a_critic_without_a_verdict",
    "model_error": "test_an_endpoint_that_is_down",
    "refused": "test_a_refusal",
    "cancelled": "test_cancelled",
}


@pytest.mark.parametrize("test", REACHED.values())
def test_every_reason_has_its_test(test):
    assert test in globals()


async def test_passed(bench, database_url):
    bench.server.script("critic-m", BAD, GOOD)
    result = await run(bench, url=database_url)
    assert (result.stop_reason, result.passed, result.answer, result.score) == ("passed", True, "answer 2", 0.9)
    assert bench.counts() == {"actor": 2, "critic": 2, "reflector": 1, "planner": 1}
    assert result.usage.requests == bench.server.count


async def test_passed_at_once_reflects_on_nothing(bench):
    bench.server.script("critic-m", GOOD)
    result = await run(bench)
    assert result.passed
    assert bench.counts() == {"actor": 1, "critic": 1, "reflector": 0, "planner": 0}


async def test_max_attempts_returns_the_best_attempt_not_the_last(bench):
    scores(bench.server, 4, 8, 6, 5)
    result = await run(bench, threshold=0.9, max_attempts=4)
    assert (result.stop_reason, result.answer, result.score) == ("max_attempts", "answer 2", 0.8)
    assert not result.passed
    assert bench.counts() == {"actor": 4, "critic": 4, "reflector": 3, "planner": 3}


async def test_plateau_by_patience(bench):
    scores(bench.server, 8, 8, 8, 8)
    result = await run(bench, threshold=0.9, max_attempts=9, patience=2)
    assert (result.stop_reason, result.answer, result.score) == ("plateau", "answer 1", 0.8)
    assert bench.counts()["actor"] == 3


@pytest.mark.parametrize(("answers", "judged"), [(["A", "A", "A"], 1), (["A", "B", "A", "B"], 2)])
async def test_plateau_by_repetition_asks_once_for_another_approach_and_judges_no_answer_twice(bench, answers, judged):
    bench.server.script("actor-m", *answers, *answers)
    result = await run(bench, max_attempts=9)
    assert (result.stop_reason, result.answer, result.score) == ("plateau", "A", 0.4)
    assert bench.counts()["actor"] == len(answers)
    assert bench.counts()["critic"] == judged
    asked = ["differs from it in kind" in bench.prompt("planner", n) for n in range(bench.counts()["planner"])]
    assert asked.count(True) == 1


async def test_another_indentation_is_another_answer(bench):
    bench.server.script("actor-m", "if x:\n    a()\n    b()", "if x:\n    a()\nb()  \n\n", "if x:\n    a()\n\nb()")
    await run(bench, max_attempts=3)
    assert bench.counts()["critic"] == 2


async def test_a_budget_in_tokens(bench):
    result = await run(bench, max_attempts=50, budget_tokens=4000)
    assert (result.stop_reason, result.answer, result.score) == ("budget", "answer 1", 0.4)
    largest = max(request_tokens(request) for request in bench.server.requests)
    assert 4000 - 2 * largest < result.usage.tokens < 4000 + largest
    assert result.usage.requests == bench.server.count


async def test_a_budget_that_pays_for_no_call_at_all_sends_none(bench):
    result = await run(bench, budget_tokens=10)
    assert (result.stop_reason, result.answer, result.score, bench.server.count) == ("budget", "", None, 0)


async def test_a_budget_in_dollars(bench):
    price = {"input": "1000", "output": "1000"}
    prices = dict.fromkeys(("actor-m", "critic-m", "reflector-m", "planner-m"), price)
    result = await run(bench, max_attempts=50, budget_usd="4", connection={"prices": prices})
    assert result.stop_reason == "budget"
    largest = max(request_tokens(request) for request in bench.server.requests)
    assert Decimal(4000 - 2 * largest) < result.usage.cost_usd * 1000 < Decimal(4000 + largest)
    assert result.answer == "answer 1"


async def test_a_deadline_ends_the_call_in_flight(bench):
    bench.server.default("actor-m", Reply(hang=True))
    running = asyncio.create_task(run(bench, deadline_s=60))
    await bench.server.wait_for_async("actor-m")
    leap(61)
    result = await running
    assert (result.stop_reason, result.answer) == ("deadline", "")
    assert bench.counts() == {"actor": 1, "critic": 0, "reflector": 0, "planner": 0}
    assert result.usage.requests == 1


async def test_a_deadline_that_is_over_returns_the_best_attempt_and_asks_nobody(bench, monkeypatch):
    class Clock:
        ahead = 0.0

        def monotonic(self):
            return time.monotonic() + self.ahead

    clock = Clock()

    def slow(_):
        clock.ahead += 1000
        return "1. Look at the empty list."

    monkeypatch.setattr(import_module("reflexion.nodes.turn"), "time", clock)
    bench.server.default("planner-m", slow)
    result = await run(bench, deadline_s=500)
    assert (result.stop_reason, result.answer, result.score) == ("deadline", "answer 1", 0.4)
    assert bench.counts() == {"actor": 1, "critic": 1, "reflector": 1, "planner": 1}


@pytest.mark.parametrize("part", ["evaluator", "actor"])
async def test_a_deadline_ends_the_callers_own_code_too(bench, part):
    async def at_once(_):
        return "done"

    async def for_ever(_):
        leap(61)
        await asyncio.Event().wait()

    own = {"actor": at_once} | {part: for_ever}
    result = await run(bench, own=own, deadline_s=60)
    assert (result.stop_reason, result.score) == ("deadline", None)
    assert result.answer == ("done" if part == "evaluator" else "")


NO_VERDICTS = ["I can't evaluate that.", Reply(None, refusal="No."), "", '{"reflection": {"flaws": []}}']


@pytest.mark.parametrize("reply", NO_VERDICTS)
@pytest.mark.parametrize("how", ["async", "sync", "stream"])
async def test_a_critic_without_a_verdict(bench, reply, how):
    bench.server.default("critic-m", reply)
    if how == "sync":
        result = await asyncio.to_thread(bench.agent().run_sync, "Sum a list.", max_attempts=3)
    else:
        result = await run(bench, stream=how == "stream")
    assert (result.stop_reason, result.answer, result.score) == ("evaluator_failed", "answer 1", None)
    refused = isinstance(reply, Reply)
    assert bench.counts() == {"actor": 1, "critic": 1 if refused else 2, "reflector": 0, "planner": 0}
    assert result.lessons_learned == ()


@pytest.mark.parametrize(
    "reply", ["I can't.", Reply(None, refusal="No."), "", {"reflection": {"flaws": []}}, {"improvement": 5}]
)
async def test_a_reflector_without_a_reflection_costs_no_attempt_and_ends_in_bounds(bench, reply):
    bench.server.default("reflector-m", reply)
    result = await run(bench, max_attempts=3)
    assert result.stop_reason == "max_attempts"
    assert bench.counts()["actor"] == 3
    assert bench.counts()["reflector"] <= 4


async def test_no_run_makes_more_requests_than_the_documented_bound(bench):
    bench.server.default("reflector-m", "{")
    bench.server.default("critic-m", lambda body: "?" if len(body["messages"]) == 2 else BAD)
    result = await run(bench, max_attempts=4)
    assert result.stop_reason == "max_attempts"
    assert bench.server.count == 6 * 4 - 3


async def test_an_endpoint_that_is_down(bench):
    bench.server.script("critic-m", BAD)
    bench.server.script("actor-m", "first", Reply.error(503, "down"))
    result = await run(bench)
    assert (result.stop_reason, result.answer, result.score) == ("model_error", "first", 0.4)
    assert result.failure["kind"] == "overloaded"
    assert bench.counts() == {"actor": 2, "critic": 1, "reflector": 1, "planner": 1}


@pytest.mark.parametrize("role", ["actor", "critic", "reflector", "planner"])
async def test_a_hopeless_request_ends_the_run_in_whichever_role_with_one_request(bench, role):
    bench.server.default(f"{role}-m", Reply.error(401, "wrong key", code="invalid_api_key"))
    result = await run(bench)
    assert (result.stop_reason, result.misconfigured) == ("model_error", True)
    assert bench.counts()[role] == 1
    assert result.answer == ("" if role == "actor" else "answer 1")


async def test_a_refusal(bench):
    bench.server.script("critic-m", BAD)
    bench.server.script("actor-m", "first", Reply(None, refusal="I will not."))
    result = await run(bench)
    assert (result.stop_reason, result.answer, result.score) == ("refused", "first", 0.4)
    assert result.lessons_learned == ()


async def test_cancelled(bench):
    bench.server.script("critic-m", BAD, GOOD)
    bench.server.hold("critic-m")
    async with bench.agent() as agent:
        running = asyncio.create_task(agent.run("Sum a list.", thread="t"))
        await bench.server.wait_for_async("critic-m")
        assert await agent.cancel("t")
        result = await running
    assert (result.stop_reason, result.answer, result.score) == ("cancelled", "answer 1", None)


async def test_what_nobody_foresaw_does_not_eat_the_attempts(bench, monkeypatch, caplog):
    def broken(*_, **__):
        raise ZeroDivisionError("key sk-1234567890 divided by zero")

    monkeypatch.setattr(import_module("reflexion.nodes.planner"), "Marks", broken)
    result = await run(bench)
    assert (result.stop_reason, result.answer, result.score) == ("model_error", "answer 1", 0.4)
    assert result.failure["kind"] == "unexpected"
    assert "sk-1234567890" not in result.stop_detail
    assert "the planner failed" in caplog.text


async def test_an_empty_reply_is_no_answer_and_is_not_judged(bench):
    bench.server.script("actor-m", "", "two", "three")
    bench.server.default("critic-m", {"score": 1})
    result = await run(bench)
    assert result.answer == "two"
    assert bench.counts()["critic"] == 2


@pytest.mark.parametrize(
    ("threshold", "reply", "passed"),
    [
        (0.7, {"score": 7}, True),
        (0.7, {"score": 6.9}, False),
        (1.0, {"score": 10}, True),
        (1.0, {"score": 9.9}, False),
        (0.0, {"score": 1}, True),
    ],
)
async def test_the_threshold_is_reached_by_its_own_value(bench, threshold, reply, passed):
    bench.server.default("critic-m", reply)
    assert (await run(bench, threshold=threshold, max_attempts=1)).passed is passed


@pytest.mark.parametrize(("score", "passed"), [(0.1 + 0.7, True), (0.7999999, False)])
async def test_sums_of_floats_do_not_miss_the_threshold(bench, score, passed):
    own = {"evaluator": lambda answer: Evaluation(score=score)}
    assert (await run(bench, own=own, threshold=0.8, max_attempts=1)).passed is passed
