"""The graph as a part of somebody else's: whose store, checkpointer, context, stream and limits hold."""

import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from loop_bench import BAD, GOOD, LESSON

from reflexion.graphs import build_graph

THEIRS = {"configurable": {"thread_id": "theirs"}}


class Theirs(TypedDict, total=False):
    task: str
    answer: str
    score: float
    note: str


@dataclass
class Context:
    threshold: str = "theirs"


def around(node, *, saver=None, store=None, context=None):
    graph = StateGraph(Theirs, context_schema=context)
    graph.add_node("solve", node)
    graph.add_edge(START, "solve")
    return graph.compile(checkpointer=saver, store=store)


@pytest.fixture
def builder(bench):
    return lambda **own: build_graph(connection=bench.connection(), settings=bench.settings(), **own)


async def lessons(store):
    return [item.value["text"] for item in await store.asearch(("reflexion", "lessons"))]


@pytest.mark.parametrize("store", [None, InMemoryStore()], ids=["no store around it", "another store around it"])
async def test_the_agents_lessons_stay_in_its_own_database(bench, store):
    async with bench.agent() as agent:
        graph = around(agent.graph, store=store)
        state = await graph.ainvoke({"task": "Sum a list.", "note": "mine"})
        assert state == {"task": "Sum a list.", "note": "mine", "answer": "answer 1", "score": 0.4}
        assert await lessons(agent.persistence.store) == [LESSON]
        result = await agent.run("Sum a list.")
    assert [lesson["text"] for lesson in result.lessons_used] == [LESSON]
    assert store is None or await store.asearch(()) == []


async def test_a_graph_built_without_a_store_uses_the_one_around_it(builder):
    store = InMemoryStore()
    await around(builder().compile(), store=store).ainvoke({"task": "Sum a list."})
    assert await lessons(store) == [LESSON]


@pytest.mark.parametrize(("checkpointer", "recalled"), [(None, 0), (True, 1)])
async def test_reflections_outlive_a_call_where_the_subgraph_keeps_its_state(builder, checkpointer, recalled):
    graph = around(builder().compile(checkpointer=checkpointer), saver=InMemorySaver())
    await graph.ainvoke({"task": "Sum a list."}, THEIRS)
    events = [e async for _, e in graph.astream({"task": "Sum a list."}, THEIRS, stream_mode="custom", subgraphs=True)]
    assert len([event for event in events if event["event"] == "recalled"]) == recalled


async def test_state_is_kept_by_the_checkpointer_around_it_and_so_are_interrupts(bench, builder):
    bench.server.script("critic-m", BAD, GOOD)
    actor = lambda given: interrupt("How?") if given["attempt"] == 2 else "first"  # noqa: E731
    graph = around(builder(actor=actor).compile(), saver=InMemorySaver())
    state: Any = await graph.ainvoke({"task": "Sum a list."}, THEIRS)
    assert [asked.value for asked in state["__interrupt__"]] == ["How?"]
    before = bench.counts()
    state = await graph.ainvoke(Command(resume="so"), THEIRS)
    assert (state["answer"], state["score"]) == ("so", 0.9)
    assert bench.counts() == before | {"critic": before["critic"] + 1}


async def test_a_review_is_an_interrupt_of_the_graph_around_it(bench):
    bench.server.script("critic-m", BAD, GOOD)
    asked = []
    async with bench.agent(review="both") as agent:
        graph = around(agent.graph, saver=InMemorySaver())
        state: Any = await graph.ainvoke({"task": "Sum a list."}, THEIRS)
        while "__interrupt__" in state:
            asked.append(state["__interrupt__"][0].value["about"])
            state = await graph.ainvoke(Command(resume="approve"), THEIRS)
    assert (asked, state["answer"]) == (["attempt", "answer"], "answer 2")
    assert bench.counts() == {"actor": 2, "critic": 2, "reflector": 1, "planner": 1}


async def test_a_run_in_a_node_has_its_attempts_whatever_the_limit_of_the_graph_around_it(bench):
    async with bench.agent() as agent:

        async def solve(state):
            return {"note": (await agent.run(state["task"], max_attempts=9)).stop_detail}

        state = await around(solve).ainvoke({"task": "Sum a list."}, {"recursion_limit": 6})
    assert "no attempt of 9" in state["note"]


@pytest.mark.parametrize(
    ("schema", "context"), [(None, None), (None, {"threshold": "theirs"}), (Context, Context()), (Context, {})]
)
async def test_a_context_of_theirs_is_not_taken_for_settings(builder, bench, schema, context):
    bench.server.default("critic-m", GOOD)
    state = await around(builder().compile(), context=schema).ainvoke({"task": "Sum a list."}, context=context)
    assert state["score"] == 0.9


async def test_a_node_may_call_it_with_settings_for_that_call(builder, bench):
    inner = builder().compile()

    async def solve(state):
        given = await inner.ainvoke({"task": state["task"]}, context=bench.settings(max_attempts=1))
        return {"note": given["stop_detail"]}

    state = await around(solve, context=Context).ainvoke({"task": "Sum a list."}, context=Context())
    assert state == {"task": "Sum a list.", "note": "no attempt of 1 reached 0.80"}


async def test_keys_that_mean_something_else_around_it_are_kept_apart_by_a_node(builder):
    class Clashing(TypedDict, total=False):
        task: int
        attempts: Annotated[int, operator.add]
        answer: list[str]

    inner = builder().compile()

    async def solve(state):
        given = await inner.ainvoke({"task": f"Sum list {state['task']}."})
        return {"answer": [given["answer"]], "attempts": len(given["attempts"])}

    graph = StateGraph(Clashing)
    graph.add_node("solve", solve)
    graph.add_edge(START, "solve")
    assert await graph.compile().ainvoke({"task": 7, "attempts": 1}) == {
        "task": 7,
        "attempts": 4,
        "answer": ["answer 1"],
    }


async def test_its_events_come_through_the_stream_around_it_under_its_name(builder):
    graph = around(builder().compile())
    parts = [part async for part in graph.astream({"task": "Sum a list."}, stream_mode="custom", subgraphs=True)]
    assert {path[0].partition(":")[0] for path, _ in parts} == {"solve"}
    assert {"attempted", "scored", "reflected", "stopped"} <= {event["event"] for _, event in parts}


@pytest.mark.parametrize(("limit", "attempts"), [(5, 1), (10, 2), (100, 3)])
async def test_a_recursion_limit_around_it_ends_the_run_with_its_best_attempt(bench, builder, limit, attempts):
    state = await around(builder().compile()).ainvoke({"task": "Sum a list."}, {"recursion_limit": limit})
    assert state["answer"] == "answer 1"
    assert bench.counts()["actor"] == attempts


async def test_tasks_in_parallel_do_not_mix(bench, builder):
    class Many(TypedDict, total=False):
        answers: Annotated[list[str], operator.add]

    bench.server.default("actor-m", lambda body: body["messages"][-1]["content"].removeprefix("Say ").rstrip("."))
    bench.server.default("critic-m", GOOD)
    inner = builder().compile()

    async def solve(given):
        return {"answers": [(await inner.ainvoke(given))["answer"]]}

    graph = StateGraph(Many)
    graph.add_node("solve", solve)
    graph.add_conditional_edges(START, lambda _: [Send("solve", {"task": f"Say {word}."}) for word in "abcd"])
    state = await graph.compile(checkpointer=InMemorySaver()).ainvoke({"answers": []}, THEIRS)
    assert state["answers"] == list("abcd")


async def test_a_run_inside_a_node_keeps_to_its_own_database(bench):
    saver, store = InMemorySaver(), InMemoryStore()
    async with bench.agent() as agent:

        async def solve(state):
            return {"answer": (await agent.run(state["task"], thread="own")).answer}

        graph = around(solve, saver=saver, store=store)
        modes: Any = ["custom", "messages"]
        parts = [part async for part in graph.astream({"task": "Sum a list."}, THEIRS, stream_mode=modes)]
        own = {line.config["configurable"]["thread_id"] async for line in agent.persistence.checkpointer.alist(None)}
        assert await lessons(agent.persistence.store) == [LESSON]
    assert own == {"own"}
    assert {line.config["configurable"]["thread_id"] for line in saver.list(None)} == {"theirs"}
    assert (await store.asearch(()), parts) == ([], [])
