"""A role's model that cannot answer is replaced in the stated order, and the run goes on."""

import pytest
from langchain_openai import ChatOpenAI
from loop_bench import GOOD, Bench

from reflexion.testing import Reply

DOWN = Reply.error(503, "down")


async def events_of(bench: Bench, *, own=None, stream=False, **settings):
    async with bench.agent(own=own, **settings) as agent:
        events = [event async for event in agent.stream("Sum a list.", stream=stream)]
        lines = await agent.persistence.ledger.lines(run_id=events[-1]["result"].run_id)
    return events[-1]["result"], [event for event in events if event["event"] == "fell_back"], lines


async def test_a_whole_run_passes_with_the_models_behind(bench):
    bench.server.default("critic-m", GOOD)
    bench.server.default("actor-m", DOWN)
    bench.server.default("first-m", Reply.error(429, "busy"))
    bench.server.default("second-m", "second's answer")
    result, switches, lines = await events_of(bench, fallback_models=("first-m", "second-m"))
    assert (result.stop_reason, result.answer) == ("passed", "second's answer")
    assert [(event["role"], event["model"], event["to"], event["reason"]) for event in switches] == [
        ("actor", "actor-m", "first-m", "overloaded"),
        ("actor", "first-m", "second-m", "rate_limit"),
    ]
    assert [(line["model"], line["outcome"]) for line in lines] == [
        ("actor-m", "overloaded"),
        ("first-m", "rate_limit"),
        ("second-m", "ok"),
        ("critic-m", "ok"),
    ]
    assert {model: usage.requests for model, usage in result.usage.by_model.items()} == dict.fromkeys(
        ("actor-m", "first-m", "second-m", "critic-m"), 1
    )


@pytest.mark.parametrize("role", ["critic", "reflector", "planner"])
async def test_every_role_falls_back(bench, role):
    bench.server.default(f"{role}-m", DOWN)
    bench.server.default("spare-m", {"critic": GOOD, "reflector": {"improvement": "Check it."}}.get(role, "A plan."))
    result, (switch, *_), _ = await events_of(bench, fallback_models=("spare-m",), max_attempts=2)
    assert result.stop_reason == ("passed" if role == "critic" else "max_attempts")
    assert switch["role"] == {"critic": "evaluator"}.get(role, role)


async def test_where_none_of_them_answers_the_run_ends_with_the_last_ones_error(bench):
    bench.server.default("actor-m", DOWN)
    bench.server.default("spare-m", Reply.error(401, "wrong key", code="invalid_api_key"))
    result, switches, _ = await events_of(bench, fallback_models=("spare-m",))
    assert (result.stop_reason, result.failure["kind"], len(switches)) == ("model_error", "auth", 1)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(None, refusal="No."), "refused"),
        (Reply.error(401, "wrong key", code="invalid_api_key"), "model_error"),
        (Reply.error(429, "pay first", code="insufficient_quota"), "model_error"),
    ],
)
async def test_a_refusal_or_an_unpaid_account_is_not_taken_elsewhere(bench, reply, reason):
    bench.server.default("actor-m", reply)
    bench.server.default("spare-m", "an answer")
    result, switches, _ = await events_of(bench, fallback_models=("spare-m",))
    assert (result.stop_reason, switches, bench.server.count) == (reason, [], 1)


async def test_an_open_breaker_costs_the_first_model_no_more_requests(bench):
    bench.server.default("actor-m", DOWN)
    numbers = iter(range(100))
    bench.server.default("spare-m", lambda _: f"spare {next(numbers)}")
    result, switches, _ = await events_of(bench, fallback_models=("spare-m",), max_attempts=8)
    assert (result.stop_reason, len(result.attempts)) == ("max_attempts", 8)
    assert [event["reason"] for event in switches] == ["overloaded"] * 5 + ["circuit_open"] * 3
    assert bench.counts()["actor"] == 5


async def test_a_prompt_too_long_for_one_model_goes_to_the_next(bench):
    bench.server.default("actor-m", Reply.error(400, "too long", code="context_length_exceeded"))
    bench.server.default("spare-m", "an answer")
    bench.server.default("critic-m", GOOD)
    result, (switch,), _ = await events_of(bench, fallback_models=("spare-m",))
    assert (result.stop_reason, switch["reason"]) == ("passed", "context_length")


async def test_a_stream_goes_on_with_the_next_models_text(bench):
    bench.server.default("actor-m", DOWN)
    bench.server.default("spare-m", "an answer")
    bench.server.default("critic-m", GOOD)
    async with bench.agent(fallback_models=("spare-m",)) as agent:
        events = [event async for event in agent.stream("Sum a list.")]
    assert "".join(event["text"] for event in events if event["event"] == "token" and event["role"] == "actor") == (
        "an answer"
    )


async def test_a_model_of_the_callers_own_is_not_its_own_fallback(bench):
    bench.server.default("own-m", DOWN)
    model = ChatOpenAI(model="own-m", base_url=bench.server.base_url, api_key="any", max_retries=0)
    result, switches, _ = await events_of(bench, own={"model": model}, fallback_models=("spare-m",))
    assert (result.stop_reason, switches, bench.server.count) == ("model_error", [], 1)
