"""The agent as a tool of another agent: its answer, its errors, and a memory of its own."""

import asyncio

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from loop_bench import BAD, GOOD, LESSON

from reflexion.graphs import ConfigurationError, as_tool
from reflexion.memory import Memory
from reflexion.testing import Reply


def call(number=1, **arguments):
    arguments = {"task": "Sum a list."} | arguments
    return {"name": "reflexion", "args": arguments, "id": f"call-{number}", "type": "tool_call"}


def around(*nodes, saver=None, store=None):
    """A graph of nodes in a row, as another agent's would be."""
    graph = StateGraph(MessagesState)
    graph.add_sequence([("node" + str(number), node) for number, node in enumerate(nodes)])
    graph.add_edge(START, "node0")
    return graph.compile(checkpointer=saver, store=store)


def calling(*calls):
    return {"messages": [AIMessage("", tool_calls=list(calls))]}


async def test_the_answer_is_the_content_and_the_whole_result_the_artifact(bench):
    bench.server.script("critic-m", BAD, GOOD)
    async with bench.agent() as agent:
        message = await as_tool(agent).ainvoke(call())
    assert (message.content, message.status, message.tool_call_id) == ("answer 2", "success", "call-1")
    assert (message.artifact["passed"], message.artifact["usage"]["requests"]) == (True, 6)
    assert [attempt["score"] for attempt in message.artifact["attempts"]] == [0.4, 0.9]


async def test_an_answer_that_did_not_pass_says_so(bench):
    async with bench.agent() as agent:
        message = await as_tool(agent, max_attempts=1).ainvoke(call())
    assert message.content.startswith("answer 1\n\n[This answer did not pass: max_attempts")
    assert "the empty list is forgotten" in message.content
    assert message.artifact["passed"] is False


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"task": ""}, "arguments cannot be used: task"),
        ({"tests": "def ("}, "cannot be begun"),
        ({"tests": "assert f(1)", "expect": "1"}, "both tests and an expected answer"),
        ({"expect": "re:("}, "no regular expression"),
        ({"criteria": "short"}, "arguments cannot be used: criteria"),
    ],
)
async def test_what_cannot_be_worked_on_comes_back_as_text_that_says_what_to_mend(bench, arguments, advice):
    async with bench.agent() as agent:
        message = await as_tool(agent).ainvoke(call(**arguments))
    assert message.status == "error"
    assert advice in message.content
    assert "call" in message.content
    assert bench.server.requests == []


async def test_without_any_answer_the_content_says_why(bench):
    bench.server.default("actor-m", Reply(status=401))
    async with bench.agent() as agent:
        message = await as_tool(agent).ainvoke(call())
    assert message.status == "error"
    assert "No answer: model_error" in message.content


async def test_a_setting_that_does_not_exist_is_refused_at_once(bench):
    with pytest.raises(ConfigurationError, match="there is no such setting"):
        as_tool(bench.agent(), budget_euro=1)


async def test_a_call_that_waits_for_a_persons_word_says_so(bench):
    bench.server.default("critic-m", GOOD)
    async with bench.agent(review="answer") as agent:
        reply = await as_tool(agent, thread="t").ainvoke(call())
        assert reply.status == "error"
        assert "waits for a review" in reply.content
        assert (await agent.run(thread="t", decision="approve")).passed


async def test_what_only_the_user_can_mend_is_raised(bench):
    async with bench.agent() as agent:
        with pytest.raises(ConfigurationError, match="needs the price of"):
            await as_tool(agent, budget_usd=1).ainvoke(call())


async def test_every_call_has_the_budget_of_its_settings(bench):
    async with bench.agent() as agent:
        tool = as_tool(agent, budget_requests=2)
        messages = [await tool.ainvoke(call(number)) for number in (1, 2)]
    assert [message.artifact["usage"]["requests"] for message in messages] == [2, 2]
    assert [message.artifact["stop_reason"] for message in messages] == ["budget", "budget"]


def test_a_model_is_told_what_the_arguments_mean(bench):
    schema = as_tool(bench.agent(), name="coder", description="Writes code.").tool_call_schema.model_json_schema()
    assert set(schema["properties"]) == {"task", "tests", "expect", "criteria"}
    assert schema["required"] == ["task"]
    assert all(field["description"] for field in schema["properties"].values())


async def test_parallel_calls_have_threads_of_their_own_and_one_memory(bench):
    saver, store = InMemorySaver(), InMemoryStore()
    async with bench.agent() as agent:
        graph = around(ToolNode([as_tool(agent)]), saver=saver, store=store)
        given = calling(*(call(number, task=f"Sum list {number}.") for number in range(3)))
        state = await graph.ainvoke(given, {"configurable": {"thread_id": "theirs"}})
        threads = {message.artifact["thread_id"] for message in state["messages"][1:]}
        assert len(threads) == 3
        own = {line.config["configurable"]["thread_id"] async for line in agent.persistence.checkpointer.alist(None)}
        assert own == threads
        assert {line.config["configurable"]["thread_id"] for line in saver.list(None)} == {"theirs"}
        assert await store.asearch(()) == []
        texts = {each.lesson["text"] for each in await Memory(agent.persistence.store).lessons()}
        assert texts == {LESSON}
    assert set(state) == {"messages"}


async def test_calls_on_one_thread_are_made_in_turn(bench):
    async with bench.agent() as agent:
        tool = as_tool(agent, thread="mine", max_attempts=2)
        messages = await asyncio.gather(*(tool.ainvoke(call(number)) for number in (1, 2)))
    assert {message.artifact["thread_id"] for message in messages} == {"mine"}
    assert bench.server.peak_concurrency == 1
    assert sorted(len(message.artifact["lessons_used"]) for message in messages) == [0, 1]


async def test_a_finished_call_is_not_made_again_when_the_graph_around_it_repeats_the_step(bench):
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "theirs"}}
    bench.server.default("critic-m", GOOD)
    async with bench.agent() as agent:
        tool = as_tool(agent)

        async def work(state):
            answer = await tool.ainvoke(call())
            return {"messages": [AIMessage(f"{answer.content}, {interrupt('Send it?')}")]}

        graph = around(work, saver=saver)
        await graph.ainvoke({"messages": []}, config)
        state = await graph.ainvoke(Command(resume="sent"), config)
        assert state["messages"][-1].content == "answer 1, sent"
        assert bench.counts()["actor"] == 1
        await graph.ainvoke({"messages": []}, config)
        assert bench.counts()["actor"] == 2


async def test_a_call_that_was_broken_off_goes_on_where_it_was(bench):
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "theirs"}}
    bench.server.script("critic-m", BAD, GOOD)
    bench.server.hold("planner-m")
    async with bench.agent() as agent:
        graph = around(ToolNode([as_tool(agent)]), saver=saver)
        running = asyncio.create_task(graph.ainvoke(calling(call()), config))
        await bench.server.wait_for_async("planner-m", timeout_s=60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        bench.server.release("planner-m")
        state = await graph.ainvoke(None, config)
    assert isinstance(state["messages"][-1], ToolMessage)
    assert state["messages"][-1].content == "answer 2"
    assert bench.counts()["actor"] == 2


async def test_what_it_does_comes_through_the_stream_around_it_and_what_its_roles_write_does_not(bench):
    bench.server.default("critic-m", GOOD)
    async with bench.agent() as agent:
        graph = around(ToolNode([as_tool(agent, stream=True)]))
        parts = [part async for part in graph.astream(calling(call()), stream_mode=["custom", "messages"])]
    events = [data for mode, data in parts if mode == "custom"]
    assert {"started", "attempted", "scored", "stopped", "token"} <= {event["event"] for event in events}
    assert {event["tool"] for event in events} == {"reflexion"}
    assert [type(message) for mode, (message, _) in ((m, d) for m, d in parts if m == "messages")] == [ToolMessage]


def test_code_that_is_not_async_can_call_it(bench):
    bench.server.default("critic-m", GOOD)
    tool = as_tool(bench.agent())
    assert tool.invoke(call()).content == "answer 1"
    assert tool.invoke(call(tests="def (")).status == "error"
    state = around(ToolNode([tool])).invoke(calling(call()))
    assert state["messages"][-1].content == "answer 2"
