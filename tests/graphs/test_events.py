"""docs/events.md against what is sent."""

import re
from pathlib import Path

from loop_bench import BAD, GOOD, Bench

from reflexion.memory.choice import TRIED_FIRST
from reflexion.testing import Reply

DOCS = Path(__file__).parents[2] / "docs" / "events.md"


def documented() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    return {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows}


def sent(events, kind):
    return [set(event) - {"event"} for event in events if event["event"] == kind]


async def test_every_event_is_documented_with_its_fields_and_every_documented_one_is_sent(bench: Bench):
    bench.server.script("reflector-m", {"improvement": "Check the empty list first."}, Reply(None, refusal="No."))
    bench.server.script("actor-m", "A", "B", "A")
    async with bench.agent(max_attempts=3) as agent:
        await agent.run("Sum a list.")
    bench.server.script("critic-m", BAD, BAD)
    bench.server.script("reflector-m", {"improvement": "Check the empty list first."}, Reply(None, refusal="No."))
    bench.server.script("actor-m", "A", "B", "A")
    bench.server.script("planner-m", Reply.error(503, "down"))
    bench.server.default("spare-m", "1. Look at the empty list.")
    async with bench.agent(max_attempts=3, fallback_models=("spare-m",)) as agent:
        events = [event async for event in agent.stream("Sum a list.")]
    table = documented()
    elsewhere = {"circuit", "custom", "review", "reviewed", "withheld"}
    assert {event["event"] for event in events} == set(table) - elsewhere
    for kind, fields in table.items():
        words = {"first", "fresh", "revise", "stream", "overloaded", "usd", "seconds"} & fields
        seen = sent(events, kind)
        assert set().union(*seen) == fields - words - {"Result"} or kind in elsewhere


async def test_a_lesson_that_is_withheld_is_told(bench: Bench):
    async with bench.agent(max_attempts=2) as agent:
        learned = await agent.run("Sum a list.")
        for _ in range(TRIED_FIRST):
            assert (await agent.run("Sum a list.", max_attempts=1, memory_control=1)).lessons_used
        asked = bench.counts()["actor"]
        events = [event async for event in agent.stream("Sum a list.", memory_control=1)]
    (withheld,) = [event for event in events if event["event"] == "withheld"]
    (told,) = sent(events, "withheld")
    result = events[-1]["result"]
    assert told == documented()["withheld"]
    assert withheld["id"] == result.lessons_withheld[0]["id"] == learned.lessons_learned[0]["id"]
    assert result.lessons_used == ()
    assert learned.lessons_learned[0]["text"] not in bench.prompt("actor", asked)


async def test_a_review_is_told_before_and_after(bench: Bench):
    bench.server.script("critic-m", BAD, GOOD)
    async with bench.agent(review="both") as agent:
        events = [event async for event in agent.stream("Sum a list.", reviewer=lambda _: "approve")]
    table = documented()
    assert set().union(*sent(events, "review")) == table["review"]
    assert set().union(*sent(events, "reviewed")) == table["reviewed"] - {"approve", "edit", "reject", "stop"}
    assert [(e["about"], e["attempt"]) for e in events if e["event"] == "review"] == [("attempt", 1), ("answer", 2)]


async def test_what_is_left_of_every_limit_is_told(bench: Bench):
    limits = {"budget_tokens": 100_000, "thread_budget_requests": 5, "deadline_s": 600, "budget_requests": 50}
    async with bench.agent(max_attempts=1, **limits) as agent:
        events = [event async for event in agent.stream("Sum a list.", thread="t")]
    first, last = [event["left"] for event in events if event["event"] == "usage"]
    assert (first["requests"], last["requests"]) == (4, 3)
    assert 0 < last["tokens"] < first["tokens"] < 100_000
    assert 0 < last["seconds"] <= first["seconds"] <= 600


async def test_a_run_tells_of_the_circuit_that_it_opens_and_its_ledger_of_what_was_not_sent(bench: Bench):
    bench.server.default("actor-m", Reply(status=503))
    bench.server.default("spare-m", "an answer")
    bench.server.default("critic-m", GOOD)
    changes = []
    async with bench.agent(fallback_models=("spare-m",)) as agent:
        for _ in range(6):
            before = bench.server.count
            events = [event async for event in agent.stream("Sum a list.")]
            changes += [event for event in events if event["event"] == "circuit"]
        lines = await agent.persistence.ledger.lines(run_id=events[-1]["result"].run_id)
    (change,) = changes
    assert set(change) - {"event"} == documented()["circuit"] - {"open", "half_open", "closed"}
    assert (change["before"], change["state"], change["model"]) == ("closed", "open", "actor-m")
    assert [line["outcome"] for line in lines] == ["circuit_open", "ok", "ok"]
    assert events[-1]["result"].usage.requests == bench.server.count - before == 2


async def test_each_role_streams_what_it_writes(bench: Bench):
    async with bench.agent(max_attempts=2) as agent:
        events = [event async for event in agent.stream("Sum a list.")]
    roles = {event["role"] for event in events if event["event"] == "token"}
    assert {"actor", "evaluator"} <= roles
    assert all(request.body["stream"] for request in bench.server.requests)
    assert not events[-1]["result"].usage.estimated


async def test_the_graph_itself_sends_the_same_but_for_the_first_and_the_last(bench):
    async with bench.agent() as agent:
        ours = [event["event"] async for event in agent.stream("Sum a list.", stream=False)]
    async with bench.agent(memory=False) as agent:
        config = {"configurable": {"thread_id": "raw"}}
        raw = agent.graph.astream(
            {"task": "Sum a list."}, config, context=bench.settings(memory=False), stream_mode="custom"
        )
        assert ["started", *[event["event"] async for event in raw], "result"] == ours
