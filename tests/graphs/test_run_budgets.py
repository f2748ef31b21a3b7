"""Budgets inside budgets: whatever runs side by side, none of them is overspent, and a run ends with what it has."""

import asyncio
from decimal import Decimal

import pytest
from loop_bench import BAD, Bench

from reflexion.graphs import ConfigurationError, build_graph
from reflexion.models import Budget
from reflexion.nodes.degradation import Measures
from reflexion.nodes.scope import shared_ledger
from reflexion.testing import Reply, count_tokens, prompt_tokens

LONG_TASK = "Sum a list of whole numbers, and tell what its sum is. " * 8
PRICE = {"input": 1000, "output": 1000}
PRICES = dict.fromkeys(("actor-m", "critic-m", "reflector-m", "planner-m"), PRICE)


class Bill:
    """What the server itself has counted, over all models."""

    def __init__(self, bench: Bench) -> None:
        self.tokens = 0
        replies = {
            "actor-m": lambda body: f"answer {len(body['messages'])} {self.tokens}",
            "reflector-m": lambda _: '{"improvement": "Check the empty list first."}',
            "planner-m": lambda _: "1. Look at the empty list.",
        }
        for model, reply in replies.items():
            bench.server.default(model, self.counted(reply))

    def counted(self, reply):
        def answer(body):
            text = reply(body)
            self.tokens += prompt_tokens(body) + count_tokens(text)
            return text

        return answer


async def side_by_side(agent, number, **given):
    return await asyncio.gather(*(agent.run(f"Sum list {n}.", **given) for n in range(number)))


async def test_requests_of_runs_side_by_side_stay_within_their_shared_budget_and_their_own(bench):
    shared = Budget("batch", requests=50)
    async with bench.agent("memory://", own={"evaluator": lambda _: 0.0}) as agent:
        results = await side_by_side(agent, 30, budget=shared, budget_requests=4, thread_budget_tokens=100_000)
    assert bench.server.count == shared.used.requests == sum(result.usage.requests for result in results) == 50
    assert shared.reserved.requests == 0
    assert max(result.usage.requests for result in results) <= 4
    assert {result.stop_reason for result in results} == {"budget"}
    assert any("'batch'" in result.stop_detail for result in results)


@pytest.mark.parametrize("unit", ["tokens", "usd"])
async def test_tokens_and_dollars_of_runs_side_by_side_are_never_overspent(bench, unit):
    bill = Bill(bench)
    cap = {"tokens": 20_000} if unit == "tokens" else {"usd": Decimal(20)}
    shared = Budget("batch", **cap, patient=True)
    own = {"evaluator": lambda _: 0.0}
    async with bench.agent("memory://", own=own, connection={"prices": PRICES}) as agent:
        results = await side_by_side(agent, 30, budget=shared, max_attempts=5, budget_requests=12)
    used = sum(result.usage.tokens for result in results)
    assert bill.tokens == used == shared.used.tokens
    assert 18_000 < used <= 20_000
    assert shared.used.usd == Decimal(used) / 1000
    assert (shared.reserved.tokens, shared.reserved.usd) == (0, 0)
    assert "budget" in {result.stop_reason for result in results}


@pytest.mark.parametrize(
    ("shortest", "caps", "said"),
    [
        ("run", {"budget_tokens": 300}, "budget 'run' of 300 tokens"),
        ("thread", {"thread_budget_tokens": 300}, "budget 'thread' of 300 tokens"),
        ("batch", {}, "budget 'batch' of 300 tokens"),
    ],
)
async def test_a_run_inside_its_thread_inside_a_batch_ends_at_whichever_is_shortest(bench, shortest, caps, said):
    outer = Budget("batch", tokens=300 if shortest == "batch" else 50_000)
    own = {"evaluator": lambda _: 0.0, "degradation": lambda _: Measures()}
    async with bench.agent("memory://", own=own, max_attempts=9) as agent:
        wide = {"budget_tokens": 40_000, "thread_budget_tokens": 45_000}
        result = await agent.run("Sum a list.", budget=outer, **wide | caps)
    assert (result.stop_reason, said in result.stop_detail) == ("budget", True)
    assert 0 < result.usage.tokens == outer.used.tokens <= 300


@pytest.mark.parametrize(("cap", "reason"), [({"requests": 3}, "budget"), ({"s": 0.001}, "deadline")])
async def test_a_threads_requests_and_time_are_counted_over_its_runs(bench, cap, reason):
    async with bench.agent(memory=False, own={"evaluator": lambda _: 0.0}) as agent:
        first = await agent.run("Sum a list.", thread="t", max_attempts=1)
        limits = {f"thread_budget_{unit}": limit for unit, limit in cap.items()}
        second = await agent.run("Sum another list.", thread="t", **limits)
    assert first.usage.requests == 1
    assert second.stop_reason == reason
    assert bench.server.count == (3 if "requests" in cap else 1)


@pytest.mark.parametrize("how", ["by name", "by task"])
async def test_what_a_cancelled_run_had_reserved_is_free_again(bench, how):
    shared = Budget("batch", tokens=10_000, requests=10)
    bench.server.hold("actor-m")
    async with bench.agent("memory://") as agent:
        running = [
            asyncio.create_task(agent.run("Sum a list.", thread=f"{n}", budget=shared, max_tokens=500))
            for n in range(5)
        ]
        await bench.server.wait_for_async("actor-m", 5)
        assert shared.reserved.requests == 5
        assert shared.reserved.tokens > 2_500
        for n, task in enumerate(running):
            if how == "by name":
                await agent.cancel(f"{n}")
            else:
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        lines = await agent.persistence.ledger.lines()
    assert (shared.reserved.tokens, shared.reserved.requests, shared.used.requests) == (0, 0, 5)
    spent = sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines)
    assert shared.remaining.tokens == 10_000 - spent
    assert [line["outcome"] for line in lines] == ["cancelled"] * 5


async def test_a_budget_of_requests_counts_repetitions_too(bench):
    bench.server.default("reflector-m", Reply.error(503, "down", headers={"retry-after-ms": "1"}))
    async with bench.agent(connection={"max_retries": 9}) as agent:
        result = await agent.run("Sum a list.", budget_requests=4)
    assert (result.stop_reason, result.answer, result.score) == ("budget", "answer 1", 0.4)
    assert bench.counts() == {"actor": 1, "critic": 1, "reflector": 2, "planner": 0}
    assert result.usage.requests == 4


@pytest.mark.parametrize("usage", ["missing", None, {"prompt_tokens": None, "completion_tokens": None}])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_budget_holds_where_the_endpoint_reports_no_usage(bench, usage, stream):
    bench.server.default("actor-m", Reply("words " * 40, usage=usage))
    async with bench.agent(own={"evaluator": lambda _: 0.0}, connection={"prices": PRICES}) as agent:
        result = await agent.run("Sum a list.", max_attempts=99, budget_tokens=1000, stream=stream)
    actor = result.usage.by_role["actor"]
    assert (result.stop_reason, actor.estimated) == ("budget", True)
    sent = bench.server.requests_for("actor-m")
    assert 1000 >= result.usage.tokens >= sum(prompt_tokens(request.body) + 60 for request in sent)
    assert actor.cost_usd == Decimal(actor.tokens) / 1000


@pytest.mark.parametrize("unit", ["tokens", "usd"])
@pytest.mark.parametrize(("more", "answer"), [(100, ""), (None, "answer 3")])
async def test_a_threads_budget_lasts_for_all_its_runs(server, database_url, unit, more, answer):
    bench = Bench(server, database_url)
    async with bench.agent(memory=False, own={"evaluator": lambda _: 0.0}, connection={"prices": PRICES}) as agent:
        first = await agent.run(LONG_TASK, thread="t", max_attempts=1)
        cap = 2 * first.usage.tokens + more if more else 3 * first.usage.tokens + 100
        limit = {"thread_budget_tokens": cap} if unit == "tokens" else {"thread_budget_usd": Decimal(cap) / 1000}
        second = await agent.run(LONG_TASK, thread="t", max_attempts=1, **limit)
        third = await agent.run(LONG_TASK, thread="t", max_attempts=3, **limit)
        assert (first.stop_reason, second.stop_reason, third.stop_reason) == ("max_attempts", "max_attempts", "budget")
        assert (third.answer, "'thread'" in third.stop_detail) == (answer, True)
        assert first.usage.tokens + second.usage.tokens + third.usage.tokens <= cap
        assert (await agent.run(LONG_TASK, thread="another", max_attempts=1, **limit)).answer


@pytest.mark.parametrize("how", ["run", "thread", "shared", "around the shared one"])
async def test_a_budget_in_dollars_without_a_price_is_refused_before_anything_is_paid_for(bench, how):
    dollars = Budget("month", usd=Decimal(1))
    given = {
        "run": {"budget_usd": 1},
        "thread": {"thread_budget_usd": 1},
        "shared": {"budget": dollars},
        "around the shared one": {"budget": Budget("batch", tokens=1000, parent=dollars)},
    }[how]
    async with bench.agent() as agent:
        with pytest.raises(ConfigurationError, match="needs the price of 'actor-m'"):
            await agent.run("Sum a list.", **given)
        await agent.run("Sum a list.", budget=Budget("batch", tokens=9), max_attempts=1)
    assert bench.server.count == 0


async def test_a_budget_of_time_around_a_run_ends_it_as_a_deadline(bench):
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    clock = Clock()

    def slow(_):
        clock.now += 1000
        return BAD

    bench.server.default("critic-m", slow)
    async with bench.agent() as agent:
        result = await agent.run("Sum a list.", budget=Budget("batch", seconds=500, clock=clock))
    assert (result.stop_reason, result.answer, result.score) == ("deadline", "answer 1", 0.4)
    assert bench.server.count == 2


async def test_a_higher_priority_goes_first_where_requests_queue(bench):
    bench.server.hold("actor-m")
    async with bench.agent("memory://", own={"evaluator": lambda _: 1.0}, connection={"concurrency": 1}) as agent:
        limits = agent._open.kit.models.seam.limits
        runs = [asyncio.create_task(agent.run("Task one."))]
        await bench.server.wait_for_async("actor-m")
        for waiting, (task, priority) in enumerate([("Task low.", -5), ("Task middle.", 0), ("Task high.", 5)], 1):
            runs.append(asyncio.create_task(agent.run(task, priority=priority)))
            while limits.state()[0].queued < waiting:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.001)
        bench.server.release("actor-m")
        await asyncio.gather(*runs)
    words = ["one", "high", "middle", "low"]
    assert [next(word for word in words if f"Task {word}." in bench.prompt("actor", n)) for n in range(4)] == words
    assert bench.server.peak_concurrency == 1


async def test_a_threads_budget_without_a_ledger_is_refused_before_anything_is_paid(bench):
    graph = build_graph(connection=bench.connection(), settings=bench.settings(thread_budget_requests=3)).compile()
    with pytest.raises(ConfigurationError, match="needs a thread and a ledger"):
        await graph.ainvoke({"task": "Sum a list."})
    assert bench.server.count == 0


async def test_a_threads_budget_holds_for_the_graph_itself_where_a_ledger_is_shared(bench):
    async with bench.agent(thread_budget_requests=3) as agent:
        config = {"configurable": {"thread_id": "t"}}
        with shared_ledger(agent.persistence.ledger):
            states = [await agent.graph.ainvoke({"task": "Sum a list."}, config) for _ in range(2)]
    assert [state["stop_reason"] for state in states] == ["budget", "budget"]
    assert bench.server.count == 3
