"""Cancelling a run by name ends it with its best attempt; cancelling whoever awaits it leaves it to be resumed."""

import asyncio
from contextlib import aclosing

import pytest
from loop_bench import BAD, GOOD, LESSON, Bench

from reflexion.memory import Memory, Recalled, ThreadBusy

ROLES = ["actor", "critic", "reflector", "planner"]


@pytest.mark.parametrize("role", ROLES)
async def test_cancel_in_a_node_ends_the_run_with_the_best_attempt_and_a_whole_ledger(server, database_url, role):
    bench = Bench(server, database_url)
    server.script("critic-m", BAD)
    async with bench.agent() as agent:
        reached = {"actor": "first", "critic": "first"}.get(role)
        server.hold(f"{role}-m")
        running = asyncio.create_task(agent.run("Sum a list.", thread="t"))
        await server.wait_for_async(f"{role}-m")
        assert await agent.cancel("t")
        result = await running
        assert result.stop_reason == "cancelled"
        assert result.answer == ("" if role == "actor" else "answer 1")
        assert result.score == (None if reached else 0.4)
        assert result.usage.requests == server.count
        assert bool(result.lessons_learned) == (role == "planner")
        state = await agent.graph.aget_state({"configurable": {"thread_id": "t"}})
        assert state.next == ()
        server.release(f"{role}-m")
        again = await agent.run("Sum a list.", thread="t", max_attempts=1)
    assert again.stop_reason == "max_attempts"


@pytest.mark.parametrize(
    "moment", ["recalled", "attempt_started", "attempted", "scored", "reflected", "planned", "usage"]
)
async def test_cancel_at_any_event_ends_the_run(bench, moment):
    async with bench.agent() as agent:
        await agent.run("Sum a list.", max_attempts=2)
        events, cancelled = [], False
        async with aclosing(agent.stream("Sum a list.", thread="t", max_attempts=3)) as stream:
            async for event in stream:
                events.append(event)
                if event["event"] == moment and not cancelled:
                    cancelled = await agent.cancel("t")
    result = events[-1]["result"]
    assert cancelled
    assert result.stop_reason == "cancelled"
    assert result.usage.requests == bench.server.count - 6


async def test_cancel_before_the_first_checkpoint_sends_no_request(bench):
    async with bench.agent() as agent:
        events = []
        async with aclosing(agent.stream("Sum a list.", thread="t")) as stream:
            async for event in stream:
                events.append(event)
                if event["event"] == "started":
                    assert await agent.cancel("t")
    result = events[-1]["result"]
    assert (result.stop_reason, result.answer, result.attempts) == ("cancelled", "", ())
    assert bench.server.count == 0


async def test_cancel_when_a_second_run_has_barely_begun_shows_nothing_of_the_first(bench):
    async with bench.agent() as agent:
        await agent.run("Sum a list.", thread="t")
        async with aclosing(agent.stream("Reverse a text.", thread="t")) as stream:
            async for event in stream:
                if event["event"] == "started":
                    await agent.cancel("t")
                if event["event"] == "result":
                    assert (event["result"].answer, event["result"].attempts) == ("", ())


async def test_cancel_at_the_last_node_changes_nothing(bench):
    bench.server.script("critic-m", GOOD)
    async with bench.agent() as agent:
        async with aclosing(agent.stream("Sum a list.", thread="t")) as stream:
            async for event in stream:
                if event["event"] == "stopped":
                    await agent.cancel("t")
                if event["event"] == "result":
                    assert event["result"].stop_reason == "passed"
        assert not await agent.cancel("t")
        assert not await agent.cancel("unknown")


async def test_cancel_while_lessons_are_recalled(bench, monkeypatch):
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(*_):
        asked.set()
        await answer.wait()
        return Recalled()

    monkeypatch.setattr(Memory, "recall", slow)
    async with bench.agent() as agent:
        running = asyncio.create_task(agent.run("Sum a list.", thread="t"))
        await asked.wait()
        assert await agent.cancel("t")
        answer.set()
        assert (await running).stop_reason == "cancelled"
    assert bench.server.count == 0


async def test_cancel_does_not_wait_for_a_callers_own_evaluator(bench):
    judging = asyncio.Event()

    async def judge(_):
        judging.set()
        await asyncio.Event().wait()

    async with bench.agent(own={"evaluator": judge}) as agent:
        running = asyncio.create_task(agent.run("Sum a list.", thread="t"))
        await judging.wait()
        await agent.cancel("t")
        assert (await running).stop_reason == "cancelled"


@pytest.mark.parametrize("role", ROLES)
async def test_breaking_off_the_await_leaves_the_thread_to_be_resumed_and_no_task_behind(bench, role):
    async with bench.agent() as agent:
        await agent.run("Warm up.", max_attempts=2)  # opens the clients' connections
        await agent.persistence.checkpointer.aget_tuple({"configurable": {"thread_id": "t"}})
        before, alive = bench.counts(), asyncio.all_tasks()
        bench.server.hold(f"{role}-m")
        running = asyncio.create_task(agent.run("Sum a list.", thread="t", max_attempts=2))
        await bench.server.wait_for_async(f"{role}-m", before[role] + 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() <= alive
        bench.server.release(f"{role}-m")
        result = await agent.run("Sum a list.", thread="t", max_attempts=2)
    assert result.stop_reason == "max_attempts"
    used = {name: bench.counts()[name] - before[name] for name in ROLES}
    assert used == {"actor": 2, "critic": 2, "reflector": 1, "planner": 1} | {
        role: 3 if role in {"actor", "critic"} else 2
    }


async def test_a_consumer_that_stops_listening_ends_the_run_and_frees_the_thread(bench):
    async with bench.agent() as agent:
        async with aclosing(agent.stream("Sum a list.", thread="t")) as stream:
            async for event in stream:
                if event["event"] == "attempted":
                    with pytest.raises(ThreadBusy):
                        await agent.run("Sum a list.", thread="t")
                    break
        result = await agent.run(None, thread="t")
    assert result.stop_reason == "max_attempts"
    assert bench.counts()["actor"] == 3
    assert result.attempts[0].reflection == LESSON
