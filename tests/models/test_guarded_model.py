"""A guarded model is its model in all respects, and none of its requests passes the guards by."""

import asyncio
from decimal import Decimal

import pytest
from guards import Clock, kinds, together
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from reflexion.models import (
    Breaker,
    Budget,
    BudgetExhausted,
    Ledger,
    Limits,
    ModelError,
    Price,
    Prices,
    RateLimit,
    RetryPolicy,
    guard_model,
)
from reflexion.models.breaker import LocalCircuits
from reflexion.models.connect import without_retries
from reflexion.testing import Reply

PRICES = Prices({"m": Price(input=Decimal(10), output=Decimal(30))})


class Verdict(BaseModel):
    """How good it is."""

    score: float


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


async def no_wait(seconds):
    pass


@pytest.fixture
def openai(endpoint):
    def make(**options):
        return ChatOpenAI(model="m", base_url=endpoint.server.base_url, api_key="any", **options)

    return make


@pytest.fixture
def guarded(openai):
    def make(model=None, **guards):
        return guard_model(model or openai(), **{"retry": RetryPolicy(sleep=no_wait)} | guards)

    return make


async def test_it_answers_as_its_model_does_and_is_booked(endpoint, guarded):
    endpoint.server.default("m", Reply("fine", model="m-2026"))
    ledger, budget = Ledger(), Budget(usd=Decimal(1))
    model = guarded(ledger=ledger, budget=budget, prices=PRICES, role="tool", run_id="r")
    answer = await model.ainvoke("How are you?")
    assert answer.content == "fine"
    assert answer.response_metadata["finish_reason"] == "stop"
    [line] = ledger.lines
    assert (line["role"], line["run_id"], line["returned_model"]) == ("tool", "r", "m-2026")
    assert (line["outcome"], line["estimated"]) == ("ok", False)
    assert line["prompt_tokens"] == answer.usage_metadata["input_tokens"]
    assert Decimal(line["cost_usd"]) == budget.used.usd > 0
    assert budget.reserved.usd == 0


async def test_the_original_stays_as_it_was(openai, endpoint):
    endpoint.server.default("m", "fine")
    model, ledger = openai(max_retries=2), Ledger()
    guarded = guard_model(model, ledger=ledger)
    assert isinstance(guarded, ChatOpenAI)
    assert type(model) is ChatOpenAI
    assert model.root_async_client.max_retries == 2
    await model.ainvoke("x")
    assert ledger.lines == []


async def test_a_stream_comes_piece_by_piece_with_its_usage(endpoint, guarded):
    endpoint.server.default("m", Reply("a rather long answer"))
    ledger = Ledger()
    pieces = [piece async for piece in guarded(ledger=ledger).astream("x")]
    assert len(pieces) > 3
    assert "".join(piece.content for piece in pieces) == "a rather long answer"
    [line] = ledger.lines
    assert (line["outcome"], line["estimated"], line["returned_model"]) == ("ok", False, "m")
    assert line["first_token_s"] is not None


async def test_events_of_a_stream_pass_the_guards_too(endpoint, guarded):
    endpoint.server.default("m", Reply("a rather long answer"))
    ledger = Ledger()
    model = guarded(ledger=ledger)
    kinds = {event["event"] async for event in model.astream_events("x", version="v2")}
    assert "on_chat_model_stream" in kinds
    async for _ in await model.astream_events("x", version="v3"):
        pass
    assert [line["outcome"] for line in ledger.lines] == ["ok", "ok"]
    assert endpoint.server.count == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_bound_and_called(endpoint, guarded, stream):
    endpoint.server.default("m", Reply.tool("weather", {"city": "Bern"}))
    ledger = Ledger()
    model = guarded(ledger=ledger).bind_tools([weather])
    if stream:
        parts = [part async for part in model.astream("Weather?")]
        answer = sum(parts[1:], parts[0])
    else:
        answer = await model.ainvoke("Weather?")
    assert answer.tool_calls[0]["args"] == {"city": "Bern"}
    assert endpoint.bodies[0]["tools"][0]["function"]["name"] == "weather"
    assert len(ledger.lines) == 1


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
async def test_structured_output_is_the_models_own(endpoint, guarded, method):
    endpoint.server.default("m", Reply({"score": 8}))
    ledger = Ledger()
    model = guarded(ledger=ledger).with_structured_output(Verdict, method=method)
    assert await model.ainvoke("Judge, in JSON.") == Verdict(score=8)
    assert len(ledger.lines) == 1


async def test_a_fault_is_repeated_by_one_layer_and_all_is_in_the_ledger(endpoint, openai, guarded):
    endpoint.server.script("m", Reply(status=503), Reply(drop=True), "fine")
    ledger = Ledger()
    assert (await guarded(openai(max_retries=5), ledger=ledger).ainvoke("x")).content == "fine"
    assert endpoint.server.count == 3
    assert [(line["retry"], line["outcome"]) for line in ledger.lines] == [
        (0, "overloaded"),
        (1, "connection"),
        (2, "ok"),
    ]


async def test_a_stream_is_repeated_until_it_has_begun_and_not_after(endpoint, guarded):
    endpoint.server.script("m", Reply(status=503), Reply("fine"), Reply("x" * 40, cut_after=6), "never asked for")
    ledger = Ledger()
    model = guarded(ledger=ledger)
    assert "".join([piece.content async for piece in model.astream("x")]) == "fine"
    with pytest.raises(ModelError) as raised:
        async for _ in model.astream("x"):
            pass
    assert raised.value.kind == "connection"
    assert [line["outcome"] for line in ledger.lines] == ["overloaded", "ok", "connection"]


async def test_usage_in_streams_is_given_up_where_it_is_refused(endpoint, guarded):
    endpoint.server.refuse("stream_options")
    endpoint.server.default("m", "fine")
    ledger = Ledger()
    model = guarded(ledger=ledger)
    for _ in range(2):
        assert "".join([piece.content async for piece in model.astream("x")]) == "fine"
    assert [line["outcome"] for line in ledger.lines] == ["bad_request", "ok", "ok"]


async def test_a_stream_that_is_left_is_booked_as_far_as_it_came(endpoint, guarded):
    endpoint.server.default("m", Reply("x" * 400))
    ledger, limits = Ledger(), RateLimit(Limits(concurrency=1))
    budget = Budget(tokens=10_000)
    stream = guarded(ledger=ledger, limits=limits, budget=budget).astream("x")
    async for _ in stream:
        break
    await stream.aclose()
    [line] = ledger.lines
    assert (line["outcome"], line["estimated"]) == ("cancelled", True)
    assert limits.state()[0].in_flight == 0 == budget.reserved.tokens


async def test_a_budget_shortens_the_reply_and_then_refuses(endpoint, guarded):
    endpoint.server.default("m", lambda body: Reply("x" * 4 * body.get("max_completion_tokens", 10_000)))
    budget = Budget(tokens=1000)
    model = guarded(budget=budget)
    await model.ainvoke("x", max_tokens=100)
    await model.ainvoke("x")
    with pytest.raises(BudgetExhausted):
        await model.ainvoke("x")
    assert endpoint.server.count == 2
    assert endpoint.bodies[0]["max_completion_tokens"] == 100
    assert 900 < budget.used.tokens <= 1000


async def test_without_a_budget_nothing_is_added_to_the_request(endpoint, openai, guarded):
    endpoint.server.default("m", "fine")
    for model in (openai(), guarded(ledger=Ledger())):
        await model.ainvoke("x")
    assert endpoint.bodies[0] == endpoint.bodies[1]


async def test_a_breaker_and_a_bound_hold(endpoint, guarded):
    endpoint.server.script("m", *[Reply(status=503)] * 5)
    endpoint.server.default("m", Reply("fine", delay_s=0.02))
    clock = Clock()
    model = guarded(
        breaker=Breaker(LocalCircuits(clock=clock)),
        limits=RateLimit(Limits(concurrency=2)),
        retry=RetryPolicy(max_retries=0),
    )
    await together(5, lambda: model.ainvoke("x"))
    assert kinds(await together(2, lambda: model.ainvoke("x"))) == ["circuit_open"] * 2
    assert endpoint.server.count == 5
    clock.now = 16.0
    await model.ainvoke("x")
    endpoint.server.hold("m")
    calls = asyncio.create_task(together(8, lambda: model.ainvoke("x")))
    await endpoint.server.wait_for_async("m", 8)  # after five faults and the probe
    endpoint.server.release("m")
    assert kinds(await calls) == ["AIMessage"] * 8
    assert endpoint.server.peak_concurrency == 2


async def test_a_call_ends_in_time_also_in_a_stream_that_drips(endpoint, guarded):
    endpoint.server.script("m", "warm")
    endpoint.server.default("m", Reply("a long answer", drip_s=0.05))
    await guarded().ainvoke("x")
    model = guarded(timeout_s=0.5, retry=RetryPolicy(max_retries=0))
    for ask in (lambda: model.ainvoke("x"), lambda: anext(drained(model.astream("x")))):
        with pytest.raises(ModelError) as raised:
            await ask()
        assert raised.value.kind == "timeout"


async def drained(stream):
    async for _ in stream:
        pass
    yield


async def test_the_consumers_time_is_not_the_models(endpoint, guarded):
    endpoint.server.default("m", "a rather long answer")
    ledger = Ledger()
    async for _ in guarded(timeout_s=60, ledger=ledger).astream("x"):
        await asyncio.sleep(0.01)
    assert ledger.lines[0]["outcome"] == "ok"


@pytest.mark.parametrize(
    "model", [FakeListChatModel(responses=["fine"]), GenericFakeChatModel(messages=iter([AIMessage("fine")] * 2))]
)
async def test_any_chat_model_can_be_guarded(model):
    ledger = Ledger()
    guarded = guard_model(model, ledger=ledger, limits=RateLimit(Limits(concurrency=1)))
    assert (await guarded.ainvoke("x")).content == "fine"
    assert "".join([piece.content async for piece in guarded.astream("x")]) == "fine"
    assert [(line["outcome"], line["estimated"]) for line in ledger.lines] == [("ok", True)] * 2
    assert all(line["completion_tokens"] for line in ledger.lines)


async def test_what_any_model_raises_is_told_apart():
    def broken():
        raise RuntimeError("weights are gone")
        yield

    ledger = Ledger()
    with pytest.raises(ModelError, match="weights are gone"):
        await guard_model(GenericFakeChatModel(messages=broken()), ledger=ledger).ainvoke("x")
    assert [line["outcome"] for line in ledger.lines] == ["failed"]


def test_sync_calls_say_what_to_use(guarded):
    model = guarded()
    for call in (model.invoke, model.stream, lambda x: list(model.stream(x)), lambda x: model.batch([x])):
        with pytest.raises(NotImplementedError, match="use ainvoke"):
            call("x")


@pytest.mark.parametrize(("given", "kept"), [({}, None), ({"stream_chunk_timeout": 7.0}, 7.0)])
def test_langchains_own_limit_of_a_streams_pieces_is_off_unless_it_was_asked_for(given, kept):
    assert without_retries(ChatOpenAI(model="m", api_key="any", **given)).stream_chunk_timeout == kept
