"""What a run has spent stands alike in its result, in its state and in the database, whatever happens to it."""

import asyncio
from dataclasses import fields

import pytest
from broken_off import TASK, Child
from loop_bench import BAD, GOOD, ROLES, Bench
from loop_time import leap

from reflexion.memory import open_persistence
from reflexion.models import Usage, as_call
from reflexion.models.ledger import sums
from reflexion.nodes.degradation import Measures
from reflexion.testing import Reply, count_tokens, prompt_tokens

NODE = {"critic": "evaluator"}


def kill_in(bench: Bench, role: str, *, slow: str = "") -> None:
    """Kill a process with a request of this role in flight, or where a method of the lessons is called."""
    sent = bench.counts().get(role, 0)
    bench.server.hold(f"{role}-m")
    child = Child(bench.server.base_url, bench.url, "t", slow, "task")
    try:
        if slow:
            assert child.says() == "held"
        else:
            bench.server.wait_for(f"{role}-m", sent + 1, timeout_s=100)
    finally:
        child.kill()
    bench.server.release(f"{role}-m")


def resume(bench: Bench) -> dict:
    return Child(bench.server.base_url, bench.url, "t", "", "task").says()


async def calls_and_lines(agent, thread="t"):
    """The last run's calls in its state, and its lines in the database without where they belong."""
    state = await agent.graph.aget_state({"configurable": {"thread_id": thread}})
    lines = await agent.persistence.ledger.lines(run_id=state.values["run_id"])
    return state.values["calls"], [as_call(line) for line in lines]


def by_id(calls):
    return sorted(calls, key=lambda call: call["id"])


@pytest.mark.parametrize("role", ROLES)
async def test_after_kill_9_in_mid_flight_the_lost_call_counts_as_an_estimate(server, sqlite_url, role):
    await lost_call_counts(Bench(server, sqlite_url), role)


async def test_after_kill_9_in_mid_flight_the_lost_call_counts_in_postgresql(server, postgres_url):
    await lost_call_counts(Bench(server, postgres_url), "critic")


async def lost_call_counts(bench: Bench, role: str) -> None:
    kill_in(bench, role)
    result = resume(bench)
    async with bench.agent() as agent:
        calls, lines = await calls_and_lines(agent)
    assert by_id(calls) == by_id(lines)
    (lost,) = [call for call in calls if call["outcome"] != "ok"]
    assert (lost["outcome"], lost["role"], lost["estimated"]) == ("lost", NODE.get(role, role), True)
    request = bench.server.requests_for(f"{role}-m")[0]
    assert lost["prompt_tokens"] >= prompt_tokens(request.body)
    assert lost["completion_tokens"] > 0
    assert result["usage"] == result["usage"] | Usage.of(calls).as_json()
    assert (result["usage"]["requests"], result["usage"]["estimated"]) == (bench.server.count, True)
    known = [call for call in calls if call["outcome"] == "ok"]
    assert Usage.of(known).prompt_tokens == sum(
        prompt_tokens(sent.body) for sent in bench.server.requests if sent is not request
    )


async def test_each_of_several_crashes_counts_once(bench):
    kill_in(bench, "reflector")
    kill_in(bench, "reflector")
    kill_in(bench, "planner")
    result = resume(bench)
    async with bench.agent() as agent:
        calls, lines = await calls_and_lines(agent)
    assert by_id(calls) == by_id(lines)
    assert [call["role"] for call in calls if call["outcome"] == "lost"] == ["reflector", "reflector", "planner"]
    assert result["usage"]["requests"] == bench.server.count == 9


async def test_a_second_run_that_dies_before_it_begins_is_not_billed_for_the_first(bench):
    async with bench.agent(max_attempts=2) as agent:
        first = await agent.run(TASK, thread="t")
    kill_in(bench, "recall", slow="recall")
    second = resume(bench)
    assert second["run_id"] != first.run_id
    assert second["usage"]["requests"] == bench.server.count - first.usage.requests


async def test_what_a_killed_run_had_spent_is_not_counted_twice_against_its_budget(bench):
    kill_in(bench, "planner")
    own = {"degradation": lambda _: Measures()}
    async with bench.agent(max_attempts=2, budget_requests=7, own=own) as agent:
        result = await agent.run(TASK, thread="t")
    assert (result.stop_reason, result.usage.requests, bench.server.count) == ("max_attempts", 7, 7)


async def test_a_killed_run_that_nobody_resumes_has_no_pending_line_once_its_thread_is_used_again(bench):
    kill_in(bench, "critic")
    async with bench.agent(max_attempts=1) as agent:
        result = await agent.run("Reverse a text.", thread="t")
        lines = await agent.persistence.ledger.lines(thread_id="t")
    assert [line["outcome"] for line in lines] == ["ok", "lost", "ok", "ok"]
    assert result.usage.requests == 2


async def test_failed_and_retried_requests_are_in_it(server, database_url):
    bench = Bench(server, database_url)
    server.script("critic-m", BAD, GOOD)
    server.script("actor-m", Reply.error(503, "down"), "one", Reply(drop=True), "two")
    async with bench.agent(connection={"max_retries": 1}) as agent:
        result = await agent.run(TASK, thread="t")
        calls, lines = await calls_and_lines(agent)
        outcomes = [
            (line["outcome"], line["retry"], line["attempt"])
            for line in await agent.persistence.ledger.lines(run_id=result.run_id)
            if line["role"] == "actor"
        ]
    assert outcomes == [("overloaded", 0, 1), ("ok", 1, 1), ("connection", 0, 2), ("ok", 1, 2)]
    assert by_id(calls) == by_id(lines)
    assert result.usage.requests == server.count == 8
    assert result.statistics["actor"].failures == {"overloaded": 1, "connection": 1}


@pytest.mark.parametrize("role", ROLES)
async def test_a_cancelled_request_is_in_it(bench, role):
    bench.server.hold(f"{role}-m")
    async with bench.agent() as agent:
        running = asyncio.create_task(agent.run(TASK, thread="t"))
        await bench.server.wait_for_async(f"{role}-m")
        await agent.cancel("t")
        result = await running
        calls, lines = await calls_and_lines(agent)
    assert by_id(calls) == by_id(lines)
    assert [call["outcome"] for call in calls] == ["ok"] * (bench.server.count - 1) + ["cancelled"]
    assert result.usage.prompt_tokens >= sum(prompt_tokens(request.body) for request in bench.server.requests)


async def test_a_run_that_is_broken_off_leaves_no_pending_line_and_pays_for_it_when_resumed(server, database_url):
    bench = Bench(server, database_url)
    async with bench.agent(max_attempts=2) as agent:
        server.hold("reflector-m")
        running = asyncio.create_task(agent.run(TASK, thread="t"))
        await server.wait_for_async("reflector-m")
        (pending,) = [line for line in await agent.persistence.ledger.lines() if line["outcome"] != "ok"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        (broken,) = [line for line in await agent.persistence.ledger.lines() if line["outcome"] != "ok"]
        assert (pending["outcome"], broken["outcome"], broken["id"]) == ("pending", "cancelled", pending["id"])
        server.release("reflector-m")
        result = await agent.run(TASK, thread="t")
        calls, lines = await calls_and_lines(agent)
    assert by_id(calls) == by_id(lines)
    assert broken["id"] in {call["id"] for call in calls}
    assert result.usage.requests == server.count == 7


@pytest.mark.parametrize("fault", [Reply(hang=True), Reply("text", stall_after=2)], ids=["silence", "stall"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_hangs_is_given_up_repeated_and_in_it(bench, fault, stream):
    bench.server.script("actor-m", fault, "an answer")
    bench.server.script("critic-m", GOOD)
    async with bench.agent(connection={"call_timeout_s": 60, "max_retries": 1}) as agent:
        running = asyncio.create_task(agent.run(TASK, thread="t", stream=stream))
        await bench.server.wait_for_async("actor-m")
        leap(61)
        result = await running
        calls, lines = await calls_and_lines(agent)
    assert (result.stop_reason, result.answer) == ("passed", "an answer")
    assert [call["outcome"] for call in calls] == ["timeout", "ok", "ok"]
    assert by_id(calls) == by_id(lines)
    assert calls[0]["estimated"]


async def test_a_call_that_the_deadline_ends_is_in_it(bench):
    bench.server.default("actor-m", Reply(hang=True))
    async with bench.agent(deadline_s=60) as agent:
        running = asyncio.create_task(agent.run(TASK, thread="t"))
        await bench.server.wait_for_async("actor-m")
        leap(61)
        result = await running
        calls, lines = await calls_and_lines(agent)
    assert (result.stop_reason, [call["outcome"] for call in calls]) == ("deadline", ["deadline"])
    assert calls == lines


def as_sum(usage):
    """The sums of a run without their parts."""
    return Usage(**{field.name: getattr(usage, field.name) for field in fields(Usage)})


async def test_lines_sum_up_by_role_run_thread_and_batch(server, database_url):
    bench = Bench(server, database_url)
    async with bench.agent(max_attempts=2) as agent:
        one = await agent.run(TASK, thread="t", batch="b")
        two = await agent.run(TASK, thread="t", batch="b", max_attempts=1)
        other = await agent.run(TASK, batch="b", max_attempts=1)
        await agent.run(TASK, batch="another", max_attempts=1)
        ledger = agent.persistence.ledger
        lines = await ledger.lines(batch_id="b")
        assert sums(await ledger.lines(run_id=one.run_id), "role") == one.usage.by_role
        assert sums(await ledger.lines(run_id=one.run_id), "model") == one.usage.by_model
        assert await ledger.lines(thread_id="t") == [line for line in lines if line["thread_id"] == "t"]
    runs = {result.run_id: result.usage for result in (one, two, other)}
    assert sums(lines, "run_id") == {run: as_sum(usage) for run, usage in runs.items()}
    again = [line for line in lines if line["attempt"] == 2 or line["role"] in {"reflector", "planner"}]
    assert one.usage.after_first == Usage.of(again)
    assert two.usage.after_first == other.usage.after_first == Usage()
    threads = sums(lines, "thread_id")
    assert threads["t"].tokens == one.usage.tokens + two.usage.tokens
    assert threads[other.thread_id].tokens == other.usage.tokens
    assert sums(lines, "batch_id")["b"].requests == 10
    assert len(lines) == len({line["id"] for line in lines}) == server.count - 2


async def test_every_answered_request_counts_what_the_server_counted(bench):
    answers = []
    bench.server.default("actor-m", lambda _: answers.append("an answer " * len(answers)) or answers[-1])
    async with bench.agent() as agent:
        result = await agent.run(TASK)
    actor = result.usage.by_role["actor"]
    sent = bench.server.requests_for("actor-m")
    assert actor.prompt_tokens == sum(prompt_tokens(request.body) for request in sent)
    assert actor.completion_tokens == sum(map(count_tokens, answers))
    assert not result.usage.estimated


async def test_the_result_has_statistics_by_role(bench):
    bench.server.script("critic-m", Reply.error(503, "down"))
    async with bench.agent() as agent:
        async for event in agent.stream("Sum a list."):
            if event["event"] == "result":
                result = event["result"]
    roles = result.as_json()["statistics"]
    assert (roles["actor"]["requests"], roles["actor"]["failures"]) == (1, {})
    assert 0 < roles["actor"]["first_token_ms"]["p50"] <= roles["actor"]["latency_ms"]["p99"]
    assert (roles["evaluator"]["failures"], roles["evaluator"]["latency_ms"]["p50"]) == ({"overloaded": 1}, None)
    # What was not answered says nothing about how long answers take.
    assert result.latency_ms == roles["actor"]["latency_ms"]


async def test_the_graph_itself_keeps_its_calls_in_its_state_alone(bench):
    async with bench.agent() as agent:
        state = await agent.graph.ainvoke({"task": TASK}, {"configurable": {"thread_id": "t"}})
        assert state["stop_reason"] == "max_attempts"
        calls, _ = await calls_and_lines(agent)
        assert len(calls) == bench.server.count
        assert await agent.persistence.ledger.lines() == []


async def test_a_closed_database_has_no_line_that_its_runs_do_not_know(bench):
    async with bench.agent(max_attempts=1) as agent:
        results = [await agent.run(TASK) for _ in range(2)]
    async with open_persistence(bench.url) as database:
        assert {line["run_id"] for line in await database.ledger.lines()} == {result.run_id for result in results}


async def test_opening_an_agent_deletes_lines_that_are_too_old_to_matter(bench, tmp_path):
    url = f"sqlite:///{tmp_path / 'old.sqlite'}"
    async with bench.agent(url) as agent:
        result = await agent.run("Sum a list.")
        (line, *_) = await agent.persistence.ledger.lines(run_id=result.run_id)
        await agent.persistence.ledger.write({**line, "id": "old", "run_id": "old", "started_at": 1.0})
    async with bench.agent(url) as agent:
        assert await agent.persistence.ledger.lines(run_id="old") == []
        assert await agent.persistence.ledger.lines(run_id=result.run_id) != []
