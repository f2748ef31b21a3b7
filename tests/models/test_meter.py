"""Budgets are never overspent, deadlines are kept, and what is unknown is never nothing."""

from decimal import Decimal

import pytest
from endpoint import PROMPT, VERDICT
from hypothesis import given
from hypothesis import strategies as st

from reflexion.models import Budget, BudgetExhausted, Price, Prices, Usage, ask_structured, object_of
from reflexion.models.ends import SMALLEST_REPLY
from reflexion.models.exchange import Exchange
from reflexion.models.usage import decimal_text, estimate_tokens
from reflexion.testing import Reply

STREAMED = [pytest.param(None, id="whole"), pytest.param(lambda _: None, id="stream")]
PRICES = {"m": Price(input=Decimal(10), output=Decimal(30))}


def usd(prompt, reply):
    return PRICES["m"].cost_usd(prompt_tokens=prompt, completion_tokens=reply)


def asking(prompt, wanted):
    return Exchange(endpoint="", model="m", prompt_tokens=prompt, reply_tokens=wanted or 0, cost_usd=usd)


@given(
    prompt=st.integers(0, 5000),
    wanted=st.none() | st.integers(1, 5000),
    tokens=st.none() | st.integers(0, 10_000),
    money=st.none() | st.decimals(0, 1, places=5),
    used=st.integers(0, 3000),
)
def test_the_limit_is_what_the_budget_can_pay_and_no_less(prompt, wanted, tokens, money, used):
    spent = Usage(requests=1, prompt_tokens=used, cost_usd=usd(used, 0))
    budget = Budget(tokens=tokens, usd=money, spent=spent)
    left_tokens = None if tokens is None else tokens - used - prompt
    left_usd = None if money is None else money - usd(used, 0)
    least = min(SMALLEST_REPLY, wanted or SMALLEST_REPLY)
    try:
        limit = budget.reply_limit(asking(prompt, wanted))
    except BudgetExhausted:
        assert (left_tokens is not None and left_tokens < least) or (
            left_usd is not None and usd(prompt, least) > left_usd
        )
        return
    if limit is None:
        assert wanted is tokens is money is None
        return
    assert limit >= least
    assert wanted is None or limit <= wanted
    assert left_tokens is None or limit <= left_tokens
    assert left_usd is None or usd(prompt, limit) <= left_usd
    assert limit in {wanted, left_tokens} or usd(prompt, limit + 1) > left_usd


@pytest.mark.parametrize("caps", [{"tokens": 10**9}, {"usd": Decimal(1000)}])
def test_a_budget_beyond_any_reply_sets_no_limit_that_endpoints_refuse(caps):
    assert Budget(**caps).reply_limit(asking(1, None)) is None


def obedient(body):
    """A reply as long as the request allows."""
    return Reply("x" * 4 * body.get("max_completion_tokens", 10_000))


@pytest.mark.parametrize("on_token", STREAMED)
@pytest.mark.parametrize("budget", [{"budget_tokens": 1000}, {"budget_usd": Decimal("0.02")}])
async def test_calls_go_on_to_the_end_of_the_budget_and_never_beyond(endpoint, budget, on_token):
    endpoint.server.default("m", obedient)
    client, meter = endpoint.client(prices=PRICES), endpoint.meter(**budget)
    for limit in (100, None):
        await endpoint.ask(client, meter, max_tokens=limit, on_token=on_token)
    with pytest.raises(BudgetExhausted):
        await endpoint.ask(client, meter, on_token=on_token)
    usage = Usage.of(meter.calls)
    assert usage.requests == endpoint.server.count == 2
    assert not usage.estimated
    assert 900 < usage.tokens <= 1000 if "budget_tokens" in budget else usage.cost_usd <= Decimal("0.02")


async def test_a_schema_counts_as_part_of_the_prompt(endpoint):
    endpoint.server.default("m", obedient)
    meter = endpoint.meter(budget_tokens=1000)
    with pytest.raises(BudgetExhausted):
        await ask_structured(endpoint.client(), PROMPT, meter, VERDICT, object_of)
    assert Usage.of(meter.calls).tokens <= 1000


async def test_a_budget_without_means_sends_nothing(endpoint):
    for limits in ({"budget_tokens": 10}, {"budget_usd": Decimal("0.0000001")}):
        with pytest.raises(BudgetExhausted):
            await endpoint.ask(endpoint.client(prices=PRICES), endpoint.meter(**limits))
    assert endpoint.server.count == 0


@pytest.mark.parametrize(
    ("reply", "on_token"),
    [
        (Reply("an answer", usage=None), None),
        (Reply("an answer", usage="missing"), None),
        (Reply("an answer", usage={"prompt_tokens": None, "completion_tokens": 7}), None),
        (Reply("an answer", usage={"prompt_tokens": 7, "completion_tokens": None}), None),
        (Reply("an answer", usage={}), None),
        (Reply("an answer", usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}), None),
        (Reply("an answer", stream_usage="none"), lambda _: None),
        (Reply("an answer", usage="missing"), lambda _: None),
        (Reply("an answer", usage=None), lambda _: None),
        (Reply.tool("verdict", {"score": 8}, usage=None), None),
    ],
)
async def test_usage_that_is_not_reported_is_estimated_and_says_so(endpoint, reply, on_token):
    endpoint.server.default("m", reply)
    meter = endpoint.meter()
    await endpoint.ask(meter=meter, on_token=on_token, structure=VERDICT)
    [call] = meter.calls
    assert call["estimated"]
    assert call["prompt_tokens"] > 0
    assert call["completion_tokens"] > 0


@pytest.mark.parametrize("place", ["final", "last", "every", "asked"])
async def test_usage_in_a_stream_is_counted_once(endpoint, place):
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    endpoint.server.default("m", Reply("a rather long answer", usage=usage, stream_usage=place))
    meter = endpoint.meter()
    await endpoint.ask(meter=meter, on_token=lambda _: None)
    [call] = meter.calls
    assert (call["prompt_tokens"], call["completion_tokens"], call["estimated"]) == (100, 20, False)
    assert call["first_token_s"] is not None


async def test_cached_and_reasoning_tokens_are_booked(endpoint):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 50},
        "completion_tokens_details": {"reasoning_tokens": 15},
    }
    endpoint.server.default("m", Reply("x", usage=usage))
    cheap = Price(input=Decimal(2), output=Decimal(0), cached_input=Decimal(1))
    meter = endpoint.meter()
    await endpoint.ask(endpoint.client(prices={"m": cheap}), meter)
    [call] = meter.calls
    assert (call["cached_tokens"], call["reasoning_tokens"], call["cost_usd"]) == (50, 15, "0.00015")


async def test_an_unknown_price_is_unknown_and_the_token_budget_still_holds(endpoint):
    endpoint.server.default("local-70b-q4", Reply("x", model="another-name"))
    client, meter = endpoint.client("local-70b-q4"), endpoint.meter(budget_tokens=200)
    assert not client.has_price()
    await endpoint.ask(client, meter)
    assert meter.calls[0]["cost_usd"] is None
    assert meter.calls[0]["returned_model"] == "another-name"
    assert Usage.of(meter.calls).as_json()["cost_usd"] is None
    used = Usage.of(meter.calls)
    meter.budget = Budget(tokens=used.tokens, spent=used)
    with pytest.raises(BudgetExhausted):
        await endpoint.ask(client, meter)
    assert endpoint.server.count == 1


def test_the_price_of_a_provider_is_not_the_price_of_the_same_name_elsewhere():
    openai, elsewhere = "https://api.openai.com/v1", "http://127.0.0.1:8000/v1"
    shipped, stated = Prices(), Prices({"gpt-4o-mini": Price(input=Decimal(0), output=Decimal(0))})
    assert shipped.cost_usd("gpt-4o-mini", openai, prompt_tokens=1, completion_tokens=1) is not None
    assert not (shipped.cost_usd("gpt-4o-mini", elsewhere, prompt_tokens=1, completion_tokens=1) is not None)
    assert not (shipped.cost_usd("gpt-4o-mini", "", prompt_tokens=1, completion_tokens=1) is not None)
    assert not (shipped.cost_usd("gpt-x-2026-01-01", openai, prompt_tokens=1, completion_tokens=1) is not None)
    assert stated.cost_usd("gpt-4o-mini", elsewhere, prompt_tokens=1, completion_tokens=1) == 0


@given(st.decimals(0, 10_000, places=9))
def test_a_cost_survives_as_text(value):
    text = decimal_text(value)
    assert Decimal(text) == value
    assert "E" not in text


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_estimated(text):
    assert len(text) / 4 <= estimate_tokens(text) <= len(text) + 1
