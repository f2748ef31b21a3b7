"""An endpoint that is down for every task does not turn the whole input into errors."""

import pytest
from batch_bench import Events, run, statuses, task

from reflexion.batch import outage, run_batch
from reflexion.models.breaker import LocalCircuits
from reflexion.models.circuit import BreakerPolicy
from reflexion.testing import Reply

DOWN = Reply.error(503, "out of order")


def hasten(agent):
    """Let the agent's breaker try again soon."""
    policy = BreakerPolicy(first_open_s=0.01, longest_open_s=0.02)
    agent.seam.breaker._circuits = LocalCircuits(policy)


async def test_few_tasks_that_are_not_answered_are_errors(bench):
    bench.replies = dict.fromkeys(range(4), DOWN)
    async with bench.agent("memory://") as agent:
        records = await run(agent.run_batch([task(n) for n in range(4)]))
    assert set(statuses(records).values()) == {"error"}


async def test_tasks_that_are_not_answered_between_others_are_errors(bench):
    bench.replies = {n: DOWN for n in range(40) if n % 4 == 0}
    events = Events()
    async with bench.agent("memory://") as agent:
        records = await run(agent.run_batch([task(n) for n in range(40)], listener=events))
    assert statuses(records) == {f"t{n}": "error" if n % 4 == 0 else "passed" for n in range(40)}
    assert not events.of("paused")


async def test_the_batch_waits_for_an_endpoint_that_is_down_and_loses_no_task(bench, monkeypatch):
    monkeypatch.setattr(outage, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(outage, "LONGEST_PAUSE_S", 0.02)
    events = Events()
    bench.server.script("m", *[DOWN] * 13)
    async with bench.agent("memory://") as agent:
        hasten(agent)
        records = await run(agent.run_batch([task(n) for n in range(40)], concurrency=3, listener=events))
    assert set(statuses(records).values()) == {"passed"}
    assert len(records) == 40
    assert events.of("paused")
    assert len(events.of("resumed")) == 1
    assert bench.server.count == 40 + 13  # behind an open breaker nothing is sent


async def test_an_endpoint_that_stays_down_ends_the_batch_in_good_order(bench, monkeypatch):
    for name, seconds in {"FIRST_PAUSE_S": 0.01, "LONGEST_PAUSE_S": 0.02, "PATIENCE_S": 0.1}.items():
        monkeypatch.setattr(outage, name, seconds)
    bench.replies = dict.fromkeys(range(100), DOWN)
    events = Events()
    async with bench.agent() as agent:
        batch = agent.run_batch([task(n) for n in range(100)], out=bench.out, listener=events)
        records = await run(batch)
        assert len(records) == 100
        assert set(statuses(records).values()) == {"not_run"}
        progress = await batch.progress()
        assert "stays down" in progress.stopped
        assert progress.stopped_by == "unreachable"
        assert bench.server.count < 40
        bench.replies = {}
        hasten(agent)
        records = await run(agent.run_batch([task(n) for n in range(100)], out=bench.out))
    assert set(statuses(records).values()) == {"passed"}


@pytest.mark.parametrize(("status", "says"), [(401, "wrong key"), (402, "pay first")])
async def test_what_waiting_does_not_mend_ends_the_batch_at_once(bench, status, says):
    bench.replies = dict.fromkeys(range(100), Reply.error(status, says))
    async with bench.agent("memory://") as agent:
        batch = run_batch([task(n) for n in range(100)], agent, concurrency=2)
        records = await run(batch)
        progress = await batch.progress()
        assert says in progress.stopped
        assert progress.stopped_by == "refused"
    assert set(statuses(records).values()) == {"not_run"}
    assert bench.server.count <= 12


async def test_models_of_a_tasks_own_say_nothing_about_the_others(bench):
    bench.server.default("gone", Reply.error(404, "no such model"))
    tasks = [task(n, context={"actor_model": "gone"}) for n in range(15)] + [task(n) for n in range(15, 20)]
    async with bench.agent("memory://") as agent:
        records = await run(agent.run_batch(tasks))
    assert statuses(records) == {f"t{n}": "error" if n < 15 else "passed" for n in range(20)}
