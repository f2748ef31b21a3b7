"""What the cache, the log, the budget and the ledger make of real requests."""

import asyncio
import json
from decimal import Decimal

import pytest
from guards import STREAMED, kinds, together
from langchain_core.messages import HumanMessage

from reflexion.models import (
    Budget,
    BudgetExhausted,
    Ledger,
    Limits,
    Price,
    Prices,
    RateLimit,
    Usage,
)
from reflexion.models.seam import Seam
from reflexion.testing import Reply


async def test_an_identical_deterministic_request_is_answered_from_memory(endpoint, capfd):
    endpoint.server.default("m", "fine")
    price = Price(input=Decimal(10), output=Decimal(30))
    client = endpoint.client(cache=True, log_requests="json", prices={"m": price})
    meter = endpoint.meter(budget_usd=Decimal(1))
    pieces = []
    await endpoint.ask(client, meter, temperature=0)
    spent = meter.budget.used
    again = await endpoint.ask(client, meter, temperature=0, on_token=pieces.append)
    assert (again.text, pieces) == ("fine", ["fine"])
    assert endpoint.server.count == 1
    assert [line["outcome"] for line in meter.ledger.lines] == ["ok", "cached"] == [c["outcome"] for c in meter.calls]
    assert meter.calls[1]["cost_usd"] == "0"
    assert Usage.of(meter.calls).requests == 1
    assert (meter.budget.used.usd, meter.budget.used.requests) == (spent.usd, 1)
    assert [json.loads(line)["outcome"] for line in capfd.readouterr().err.splitlines()] == ["ok", "cached"]


async def test_identical_requests_at_the_same_time_are_one(endpoint):
    endpoint.server.default("m", Reply("fine", delay_s=0.05))
    client, meter = endpoint.client(cache=True), endpoint.meter()
    replies = await together(5, lambda: endpoint.ask(client, meter, temperature=0))
    assert [reply.text for reply in replies] == ["fine"] * 5
    assert endpoint.server.count == 1
    assert sorted(line["outcome"] for line in meter.ledger.lines) == ["cached"] * 4 + ["ok"]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}])
async def test_what_is_left_to_chance_is_asked_again(endpoint, options):
    endpoint.server.default("m", "fine")
    client = endpoint.client(cache=True)
    for _ in range(2):
        await endpoint.ask(client, **options)
    assert endpoint.server.count == 2


async def test_without_the_setting_nothing_is_cached(endpoint):
    endpoint.server.default("m", "fine")
    client = endpoint.client()
    for _ in range(2):
        await endpoint.ask(client, temperature=0)
    assert endpoint.server.count == 2


async def test_each_request_is_one_event_without_prompt_reply_or_key(endpoint, capfd):
    key = "sk-test-0123456789"
    endpoint.server.script("m", Reply.error(503, f"no, {key}"), "the very secret reply")
    client = endpoint.client(log_requests="json", api_key=key)
    meter = endpoint.meter(role="critic", attempt=3, run_id="run-7")
    await client.complete([HumanMessage("the very secret prompt")], meter)
    written = capfd.readouterr().err
    events = [json.loads(line) for line in written.splitlines()]
    assert len(events) == endpoint.server.count == 2
    for event in events:
        assert {"run": "run-7", "role": "critic", "attempt": 3}.items() <= event.items()
    assert [(event["retry"], event["outcome"], event["level"]) for event in events] == [
        (0, "overloaded", "warning"),
        (1, "ok", "info"),
    ]
    assert [event["call"] for event in events] == [line["id"] for line in meter.ledger.lines]
    assert "very secret" not in written
    assert key not in written


async def test_a_request_that_was_not_sent_is_no_event(endpoint, capfd):
    client = endpoint.client(log_requests="json")
    with pytest.raises(BudgetExhausted):
        await endpoint.ask(client, endpoint.meter(budget_tokens=10))
    assert capfd.readouterr().err == ""


PRICES = {"m": Price(input=Decimal(100), output=Decimal(200))}
"""A prompt of 400 tokens costs 0.04 USD, a reply of 64 costs 0.0128."""
LONG, SMALL = [HumanMessage("x" * 4 * 396)], 64


def in_batch(spent, run="run", **more):
    batch = Budget("batch", usd=Decimal(1), spent=Usage(requests=9, cost_usd=Decimal(spent)), **more)
    return batch, Budget(run, usd=Decimal(1), parent=batch)


async def test_of_parallel_calls_that_none_of_them_can_pay_for_none_goes_out(endpoint):
    batch, run = in_batch("0.95")
    client = endpoint.client(prices=PRICES)
    meter = endpoint.meter()
    meter.budget = run
    results = await together(8, lambda: client.complete(LONG, meter, max_tokens=SMALL))
    assert endpoint.server.count == 0 == len(meter.ledger.lines)
    assert {str(error) for error in results} == {
        "budget 'batch' of 1 USD: 0.95 spent, 0 reserved, the next call needs 0.0528"
    }
    assert batch.reserved.usd == run.reserved.usd == 0


async def test_parallel_calls_spend_what_there_is_and_not_more(endpoint):
    usage = {"prompt_tokens": 400, "completion_tokens": SMALL, "total_tokens": 400 + SMALL}
    endpoint.server.default("m", Reply("x", usage=usage, delay_s=0.02))
    batch, run = in_batch("0.84")
    client, meter = endpoint.client(prices=PRICES), endpoint.meter()
    meter.budget = run
    results = await together(8, lambda: client.complete(LONG, meter, max_tokens=SMALL))
    assert kinds(results).count("BudgetExhausted") == 5
    assert endpoint.server.count == 3
    assert batch.used.usd == Decimal("0.9984")
    assert run.used.usd == 3 * Decimal("0.0528") == Usage.of(meter.ledger.lines).cost_usd
    assert batch.reserved.usd == run.reserved.usd == 0


async def test_what_parallel_calls_run_over_is_one_reply_with_overrun_counted(endpoint):
    usage = {"prompt_tokens": 400, "completion_tokens": 400, "total_tokens": 800}
    endpoint.server.default("m", Reply("x", usage=usage, delay_s=0.02))
    batch, run = in_batch("0.84", overrun=3)
    client, meter = endpoint.client(prices=PRICES), endpoint.meter()
    meter.budget = run
    await together(8, lambda: client.complete(LONG, meter, max_tokens=SMALL))
    assert endpoint.server.count == 1
    assert batch.used.usd == Decimal("0.96")


@pytest.mark.parametrize("on_token", STREAMED)
async def test_cancelled_calls_free_what_they_reserved_and_are_in_the_ledger(endpoint, guarded_client, on_token):
    endpoint.server.default("m", Reply(hang=True))
    seam = Seam(limits=RateLimit(Limits(concurrency=4, tokens_per_minute=1e6)))
    client, meter = guarded_client(seam, prices=Prices(PRICES)), endpoint.meter()
    _, meter.budget = in_batch("0")
    calls = [asyncio.create_task(client.complete(LONG, meter, max_tokens=SMALL, on_token=on_token)) for _ in range(10)]
    await endpoint.server.wait_for_async("m", 4)
    assert meter.budget.reserved.requests == 10
    assert [line["outcome"] for line in meter.ledger.lines] == ["pending"] * 4
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert endpoint.server.count == 4
    assert [line["outcome"] for line in meter.ledger.lines] == ["cancelled"] * 4
    assert all(line["estimated"] for line in meter.ledger.lines)
    # Four had been sent, and what their prompts cost nobody gives back.
    assert meter.budget.used.usd == 4 * Decimal("0.04") == meter.budget.parent.used.usd
    assert meter.budget.reserved.usd == 0 == meter.budget.reserved.tokens
    [limit] = seam.limits.state()
    assert limit.in_flight == limit.queued == 0


async def test_nothing_is_sent_that_cannot_be_recorded(endpoint):
    class Full:
        async def write(self, line, reply=None):
            raise OSError("disk full")

        async def remove(self, line_id):
            pass

    meter = endpoint.meter(ledger=Ledger(Full()), budget_tokens=1000)
    with pytest.raises(OSError, match="disk full"):
        await endpoint.ask(meter=meter)
    assert endpoint.server.count == 0
    assert meter.budget.reserved.tokens == 0


async def test_ledger_budget_and_server_count_the_same(endpoint):
    good = Reply("x", usage={"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12})
    endpoint.server.script("m", *[Reply(status=503), good, good, Reply(status=429)] * 15)
    endpoint.server.default("m", good)
    client = endpoint.client(concurrency=8, max_retries=20)
    meter = endpoint.meter(budget_tokens=10**6)
    assert set(kinds(await together(60, lambda: endpoint.ask(client, meter, max_tokens=50)))) == {"Reply"}
    assert endpoint.server.count == len(meter.ledger.lines) == 60 + 30
    assert endpoint.server.peak_concurrency <= 8
    assert meter.budget.used.tokens == 60 * 12 == meter.ledger.usage.tokens
