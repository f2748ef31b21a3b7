"""Threads can be seen, deleted, and pruned by age, and a run that works on one keeps it."""

import time
from datetime import datetime
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from reflexion.memory import Pruned, ThreadBusy, Threads, open_persistence


def add(old: list[int], new: list[int]) -> list[int]:
    return [*old, *new]


class Notes(TypedDict):
    notes: Annotated[list[int], add]


def graph_on(checkpointer):
    """Two steps; the second has a graph of its own, which asks somebody."""
    inner = StateGraph(Notes)
    inner.add_node("ask", lambda state: {"notes": [interrupt("a number")]})
    inner.add_edge(START, "ask")
    inner.add_edge("ask", END)
    outer = StateGraph(Notes)
    outer.add_node("write", lambda state: {"notes": [len(state["notes"])]})
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "write")
    outer.add_edge("write", "inner")
    outer.add_edge("inner", END)
    return outer.compile(checkpointer=checkpointer)


def on(thread):
    return {"configurable": {"thread_id": thread}}


async def fill(database, *names):
    graph = graph_on(database.checkpointer)
    for name in names:
        await graph.ainvoke({"notes": [7]}, on(name))
    return graph


async def test_threads_are_listed_with_their_size_the_last_used_first(database_url):
    async with open_persistence(database_url) as database:
        assert await database.threads.all() == []
        began = time.time()
        graph = await fill(database, "a", "b")
        await graph.ainvoke(Command(resume=1), on("a"))
        first, second = await database.threads.all()
        assert (first.id, second.id) == ("a", "b")
        assert first.checkpoints > second.checkpoints > 1
        assert first.bytes > second.bytes > 500
        assert began - 1 < second.last_used_at < first.last_used_at < time.time() + 1
        saved = await database.checkpointer.aget_tuple(on("a"))
        assert abs(first.last_used_at - datetime.fromisoformat(saved.checkpoint["ts"]).timestamp()) < 1


async def test_a_deleted_thread_is_gone_and_others_are_not(database_url):
    async with open_persistence(database_url) as database:
        graph = await fill(database, "a", "b")
        await database.threads.delete("a")
        assert [thread.id for thread in await database.threads.all()] == ["b"]
        assert (await graph.aget_state(on("a"))).values == {}
        assert (await graph.aget_state(on("b"))).values["notes"] == [7, 1]


async def test_a_thread_on_which_a_run_works_is_neither_deleted_nor_pruned(durable_url):
    async with open_persistence(durable_url) as database, open_persistence(durable_url) as other:
        await fill(database, "a", "b")
        async with other.locks.hold("a"):
            with pytest.raises(ThreadBusy):
                await database.threads.delete("a")
            assert await database.threads.prune(older_than_s=-60) == Pruned(threads=1, busy=1)
        assert [thread.id for thread in await database.threads.all()] == ["a"]


async def test_only_threads_that_are_old_enough_are_pruned(database_url):
    async with open_persistence(database_url) as database:
        await fill(database, "a", "b")
        newest = (await database.threads.all())[0].last_used_at
        threads = Threads(database.checkpointer, database.locks, database.threads.all, now=lambda: newest + 100)
        assert await threads.prune(older_than_s=101) == Pruned(threads=0, busy=0)
        await graph_on(database.checkpointer).ainvoke(Command(resume=1), on("a"))
        assert await threads.prune(older_than_s=100) == Pruned(threads=1, busy=0)
        assert [thread.id for thread in await database.threads.all()] == ["a"]


async def test_a_thread_that_is_cut_down_can_be_resumed_where_it_was(durable_url):
    async with open_persistence(durable_url) as database:
        graph = await fill(database, "a", "b")
        await graph.ainvoke(Command(resume=1), on("a"))
        await graph.ainvoke({"notes": [8]}, on("a"))
        before, untouched = await graph.aget_state(on("a"), subgraphs=True), await graph.aget_state(on("b"))
        sizes = {thread.id: thread.bytes for thread in await database.threads.all()}
        await database.checkpointer.aprune(["a"])
        after = await graph.aget_state(on("a"), subgraphs=True)
        assert after.values == before.values
        assert after.tasks[0].state.values == before.tasks[0].state.values
        assert len([snapshot async for snapshot in graph.aget_state_history(on("a"))]) == 1
        assert {thread.id: thread.bytes for thread in await database.threads.all()}["a"] < sizes["a"]
        assert await graph.aget_state(on("b")) == untouched
        done = await graph.ainvoke(Command(resume=2), on("a"))
        assert done["notes"][-1] == 2
        await database.checkpointer.aprune(["a"])
        left = [entry async for entry in database.checkpointer.alist(on("a"))]
        assert [entry.config["configurable"]["checkpoint_ns"] for entry in left] == [""]


async def test_pruning_may_keep_the_last_state_of_each_thread(durable_url):
    async with open_persistence(durable_url) as database:
        graph = await fill(database, "a", "b")
        assert await database.threads.prune(older_than_s=-60, keep_last=True) == Pruned(threads=2, busy=0)
        for name in ("a", "b"):
            assert (await graph.ainvoke(Command(resume=5), on(name)))["notes"][-1] == 5


async def test_a_checkpoint_of_unknown_age_is_never_old(sqlite_url):
    from langgraph.checkpoint.base import empty_checkpoint

    async with open_persistence(sqlite_url) as database:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        await database.checkpointer.aput(config, empty_checkpoint() | {"id": "first"}, {}, {})
        (thread,) = await database.threads.all()
        assert (thread.id, thread.last_used_at) == ("t", None)
        assert await database.threads.prune(older_than_s=-60) == Pruned(threads=0, busy=0)


async def test_a_history_that_deltas_need_is_not_cut_away(sqlite_url):
    from langgraph.checkpoint.base import empty_checkpoint

    async with open_persistence(sqlite_url) as database:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        metadata = {"counters_since_delta_snapshot": {"notes": [1, 1]}}
        for _ in range(2):
            config = await database.checkpointer.aput(config, empty_checkpoint(), metadata, {})
        with pytest.raises(NotImplementedError, match="DeltaChannel"):
            await database.threads.prune(older_than_s=-60, keep_last=True)
        assert (await database.threads.all())[0].checkpoints == 2
