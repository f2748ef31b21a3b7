"""The server and Python on one database, and the server's graph in the place of a local one."""

import uuid
from typing import Any

import pytest
from dev_server import LESSON, SECRET, Cast
from langgraph.graph import END, START, StateGraph
from langgraph.pregel.remote import RemoteGraph
from typing_extensions import TypedDict

from reflexion.graphs import Settings, open_reflexion
from reflexion.models import ConnectionSettings

TASK = {"task": "Sum a list."}
COMPARED = ("answer", "score", "passed", "stop_reason", "stop_detail", "plan", "lessons_used", "lessons_learned")


@pytest.fixture
async def agent(server, cast):
    """In this process, on the server's database."""
    connection = ConnectionSettings(base_url=server.endpoint.base_url, api_key=SECRET)
    async with open_reflexion(
        Settings(**cast.context), connection=connection, database_url=server.database_url
    ) as agent:
        yield agent


async def test_the_remote_graph_is_the_local_one(server, cast, agent):
    remote = RemoteGraph("reflexion", url=server.url)
    other = Cast.new(server.endpoint)
    other.plays_two_attempts()
    here = await agent.graph.ainvoke(TASK, {"configurable": {"thread_id": "local"}}, context=Settings(**other.context))
    config: Any = {"configurable": {"thread_id": str(uuid.uuid4())}}
    there = await remote.ainvoke(TASK, config, context=cast.context)
    assert {name: there[name] for name in COMPARED} == {name: here[name] for name in COMPARED}
    state = await remote.aget_state(config)
    assert state.values["attempts"][0]["reflection"] == LESSON
    assert state.next == ()


async def test_the_remote_graph_streams(server, cast):
    remote = RemoteGraph("reflexion", url=server.url)
    parts = [part async for part in remote.astream(TASK, context=cast.context, stream_mode=["updates", "custom"])]
    steps = [name for part in parts if part.event == "updates" for name in part.data]
    events = [part.data["event"] for part in parts if part.event == "custom"]
    assert steps[:3] == ["recall", "actor", "evaluator"]
    assert (events[0], events[-1]) == ("attempt_started", "stopped")


async def test_the_remote_graph_is_a_node_of_another(server, client, cast):
    class Outer(TypedDict, total=False):
        task: str
        answer: str

    assistant = await client.assistants.create("reflexion", context=cast.context)
    graph = StateGraph(Outer)
    graph.add_node("reflexion", RemoteGraph(assistant["assistant_id"], url=server.url, name="reflexion"))
    graph.add_edge(START, "reflexion")
    graph.add_edge("reflexion", END)
    assert (await graph.compile().ainvoke(TASK))["answer"] == "answer 2"
    await client.assistants.delete(assistant["assistant_id"])


async def test_a_thread_made_in_python_goes_on_on_the_server(client, cast, agent):
    thread = str(uuid.uuid4())
    result = await agent.run("Sum a list.", thread=thread)
    assert result.passed
    await client.threads.create(thread_id=thread, graph_id="reflexion", if_exists="do_nothing")
    state = await client.threads.get_state(thread)
    assert state["values"]["answer"] == result.answer
    assert len(await client.threads.get_history(thread, limit=50)) == 10
    again = await client.runs.wait(thread, "reflexion", input={"task": "Sum a list of floats."}, context=cast.context)
    assert [lesson["text"] for lesson in again["lessons_used"]] == [LESSON]


async def test_a_thread_made_on_the_server_goes_on_in_python(client, cast, agent):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "reflexion", input=TASK, context=cast.context)
    state = await agent.graph.aget_state({"configurable": {"thread_id": thread}})
    assert state.values["answer"] == "answer 2"
    result = await agent.run("Sum a list of floats.", thread=thread)
    assert [lesson["text"] for lesson in result.lessons_used] == [LESSON]


async def test_lessons_are_shared_both_ways(client, cast, agent):
    learned = await agent.run("Sum a list.")
    (found,) = await stored(client, cast)
    assert found["text"] == LESSON
    used = await client.runs.wait(None, "reflexion", input=TASK, context=cast.context)
    assert [lesson["id"] for lesson in used["lessons_used"]] == [learned.lessons_learned[0]["id"]]
    (experience, *_) = [each for each in await stored(client, cast, "experiences") if each["use"]]
    assert (experience["lesson_id"], experience["use"]["outcome"]) == (found["id"], "helped")


async def stored(client, cast, kind="lessons") -> list[dict]:
    found = await client.store.search_items(("reflexion", kind, cast.name))
    return [item["value"] for item in found["items"]]
