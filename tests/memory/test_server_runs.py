"""What LangGraph's server asks of a checkpointer beyond saving: to take runs back, and to keep secrets out."""

import operator
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from reflexion.memory import open_persistence


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]


def notebook(database: Any) -> Any:
    graph = StateGraph(Notes)
    graph.add_node("write", lambda state: {"notes": [f"after {len(state['notes'])}"]})
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=database.checkpointer)


def by(run: str, **configurable: str) -> Any:
    return {"configurable": {"thread_id": "t", **configurable}, "metadata": {"run_id": run}}


async def test_a_run_that_is_taken_back_leaves_its_thread_as_it_was(durable_url):
    async with open_persistence(durable_url) as database:
        graph = notebook(database)
        await graph.ainvoke({"notes": ["first"]}, by("1"))
        before = [entry async for entry in database.checkpointer.alist(by("1"))]
        await graph.ainvoke({"notes": ["second"]}, by("2"))
        await graph.ainvoke({"notes": ["third"]}, by("3"))
        await database.checkpointer.adelete_for_runs(["2", "3"])
        after = [entry async for entry in database.checkpointer.alist(by("1"))]
        assert after == before
        assert (await graph.aget_state(by("1"))).values == {"notes": ["first", "after 1"]}
        await graph.ainvoke({"notes": ["again"]}, by("4"))
        assert (await graph.aget_state(by("4"))).values["notes"][2:] == ["again", "after 3"]


@pytest.mark.parametrize("copied_by", ["the saver", "the server"])
async def test_what_is_given_as_configurable_is_not_kept(durable_url, copied_by):
    given = {"api_key": "sk-very-secret"}
    metadata = {"source": "update", "step": 0, "parents": {}, "run_id": "1", "thread_id": "t"}
    if copied_by == "the server":
        metadata |= given
    async with open_persistence(durable_url) as database:
        from langgraph.checkpoint.base import empty_checkpoint

        config: Any = by("1", run_id="1", checkpoint_ns="", **given)
        await database.checkpointer.aput(config, empty_checkpoint(), metadata, {})
        (entry,) = [entry async for entry in database.checkpointer.alist(by("1"))]
        assert "sk-very-secret" not in str(entry)
        assert entry.metadata["run_id"] == "1"
        assert entry.metadata["source"] == "update"
