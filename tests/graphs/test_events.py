"""docs/events.md against what is sent."""

import re
from pathlib import Path

from loop_bench import BAD, Bench

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
    assert {event["event"] for event in events} == set(table) - {"custom"}
    for kind, fields in table.items():
        words = {"first", "fresh", "revise", "stream", "overloaded"} & fields
        seen = sent(events, kind)
        assert set().union(*seen) == fields - words - {"Result"} or kind == "custom"


async def test_the_graph_itself_sends_the_same_but_for_the_first_and_the_last(bench):
    async with bench.agent() as agent:
        ours = [event["event"] async for event in agent.stream("Sum a list.", stream=False)]
    async with bench.agent(memory=False) as agent:
        config = {"configurable": {"thread_id": "raw"}}
        raw = agent.graph.astream(
            {"task": "Sum a list."}, config, context=bench.settings(memory=False), stream_mode="custom"
        )
        assert ["started", *[event["event"] async for event in raw], "result"] == ours
