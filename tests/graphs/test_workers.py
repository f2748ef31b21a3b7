"""What agents share that are opened as workers: limits, circuits and budgets, in Redis if there is one."""

from decimal import Decimal

import pytest
from loop_bench import ROLES, Bench
from psycopg import connect

from reflexion.graphs import ConfigurationError
from reflexion.models import Budget
from reflexion.testing import Reply

WORKER = {"shared": True}


@pytest.fixture
def bench(server, postgres_url):
    return Bench(server, postgres_url)


def worker(bench: Bench, **settings):
    connection = {"concurrency": 3, "prices": {f"{role}-m": {"input": 1, "output": 1} for role in ROLES}}
    return bench.agent(own=WORKER, connection=connection, max_attempts=1, **settings)


async def test_runs_of_two_workers_spend_from_one_budget(bench):
    async with worker(bench) as one, worker(bench) as other:
        budgets = [agent.shared_budget("batch", requests=5) for agent in (one, other)]
        ends = [
            (await agent.run("Sum a list.", budget=budget)).stop_reason
            for agent, budget in [(one, budgets[0]), (other, Budget("inside", parent=budgets[1])), (one, budgets[0])]
        ]
        spent, reserved = await budgets[1].look()
    assert ends == ["max_attempts", "max_attempts", "budget"]
    assert (spent.requests, reserved.requests, bench.server.count) == (5, 0, 5)


async def test_a_budget_in_usd_is_spent_as_the_ledger_says(bench):
    async with worker(bench) as agent:
        budget = agent.shared_budget("batch", usd=Decimal("0.5"))
        result = await agent.run("Sum a list.", budget=budget)
        spent, _ = await budget.look()
    assert result.usage.cost_usd == spent.usd > 0


async def test_workers_share_circuits_and_slots_in_the_database(bench):
    bench.server.default("actor-m", lambda _: Reply.error(500, "down"))
    async with worker(bench) as one, worker(bench) as other:
        for agent in [one, other] * 3:
            result = await agent.run("Sum a list.")
        assert (result.stop_reason, bench.server.count) == ("model_error", 5)
    with connect(bench.url) as database:
        kinds = database.execute("SELECT kind, name FROM reflexion_shared ORDER BY kind").fetchall()
    assert [kind for kind, _ in kinds] == ["circuit", "limit"]


async def test_an_agent_that_is_no_worker_shares_nothing(bench):
    async with bench.agent(max_attempts=1) as agent:
        await agent.run("Sum a list.")
        with pytest.raises(ConfigurationError, match="REFLEXION_REDIS_URL, or PostgreSQL and shared=True"):
            agent.shared_budget("batch", requests=5)
    with connect(bench.url) as database:
        assert database.execute("SELECT to_regclass('reflexion_shared')").fetchone() == (None,)


async def test_with_a_redis_the_budget_is_kept_there(bench, redis_url, prefix):
    connection = {"redis_url": redis_url}
    async with bench.agent(own=WORKER, connection=connection, max_attempts=1) as agent:
        budget = agent.shared_budget(prefix, requests=2)
        budget._store._prefix = prefix
        assert (await agent.run("Sum a list.", budget=budget)).stop_reason == "max_attempts"
        spent, _ = await budget.look()
    assert spent.requests == 2
