"""A checkpoint of the past is edited, and the run goes on from there."""

import pytest
from loop_bench import BAD, GOOD, LESSON, Bench

TASK = {"task": "Sum a list."}
EDITED = "Count with a loop."


@pytest.mark.parametrize(
    ("node", "then", "change"),
    [
        ("planner", "actor", {"plan": EDITED}),
        ("reflector", "planner", {"attempts": [{"number": 1, "reflection": EDITED}]}),
        ("evaluator", "reflector", {"attempts": [{"number": 1, "feedback": EDITED}]}),
    ],
)
async def test_the_fork_works_with_what_was_edited_and_the_past_stays(bench: Bench, node, then, change):
    bench.server.script("critic-m", BAD, GOOD, GOOD)
    async with bench.agent() as agent:
        graph, config = agent.graph, {"configurable": {"thread_id": "t"}}
        await graph.ainvoke(TASK, config)
        ended = await graph.aget_state(config)
        history = [state async for state in graph.aget_state_history(config)]
        asked = bench.counts()
        old = next(state for state in history if state.next == (then,))
        fork = await graph.aupdate_state(old.config, change, as_node=node)
        assert (await graph.aget_state(fork)).next == (then,)
        state = await graph.ainvoke(None, fork)
        assert (await graph.aget_state(ended.config)).values == ended.values
    assert state["passed"]
    reads = {"planner": "actor", "reflector": "planner", "evaluator": "reflector"}[node]
    assert EDITED in bench.prompt(reads, 1 if reads != "actor" else 2)
    assert bench.counts()["actor"] == asked["actor"] + 1
    assert (LESSON in bench.prompt("actor", 2)) == (node != "reflector")
