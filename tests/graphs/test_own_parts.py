"""The caller's own actor, evaluator and models; chat messages as input; the graph inside another."""

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from loop_bench import BAD, GOOD, LESSON, Bench

from reflexion.evaluators import Evaluation
from reflexion.graphs import build_graph, open_reflexion
from reflexion.graphs.state import Input
from reflexion.testing import Reply


def answering(given):
    return f"own {given['attempt']}: {', '.join(given['rules'])}"


async def answering_async(given):
    return AIMessage(f"<think>hm</think>{answering(given)}")


def chat_graph(answer=answering):
    class Chat(MessagesState):
        attempt: int
        rules: list[str]

    graph = StateGraph(Chat)
    graph.add_node("talk", lambda state: {"messages": [AIMessage(answer(state))]})
    graph.add_edge(START, "talk")
    return graph.compile()


ACTORS = {
    "function": answering,
    "async function": answering_async,
    "runnable": RunnableLambda(answering) | RunnableLambda(lambda text: {"answer": text}),
    "graph": chat_graph(),
}


@pytest.mark.parametrize("actor", ACTORS.values(), ids=ACTORS)
async def test_an_own_actor_makes_the_attempts_with_what_was_learned(bench, actor):
    bench.server.script("critic-m", BAD, GOOD)
    async with bench.agent(own={"actor": actor}, actor_model=None) as agent:
        result = await agent.run("Sum a list.")
    assert [attempt.answer for attempt in result.attempts] == ["own 1:", f"own 2: {LESSON}"]
    assert bench.counts() == {"actor": 0, "critic": 2, "reflector": 1, "planner": 1}


async def test_an_own_actor_that_fails_ends_the_run_with_the_attempt_before(bench):
    def actor(given):
        if given["attempt"] == 2:
            raise OSError("disk full")
        return "first"

    async with bench.agent(own={"actor": actor}) as agent:
        result = await agent.run("Sum a list.")
    assert (result.stop_reason, result.answer, result.failure["kind"]) == ("model_error", "first", "actor_failed")


async def test_an_own_actor_may_refuse(bench):
    refusal = AIMessage("", additional_kwargs={"refusal": "I will not."})
    async with bench.agent(own={"actor": lambda _: refusal}) as agent:
        assert (await agent.run("Sum a list.")).stop_reason == "refused"


async def test_an_own_actor_may_ask_a_person(bench):
    bench.server.script("critic-m", GOOD)
    actor = chat_graph(lambda _: interrupt("what now?"))
    config = {"configurable": {"thread_id": "t"}}
    async with bench.agent(own={"actor": actor}) as agent:
        with pytest.raises(RuntimeError, match="interrupt"):
            await agent.run("Sum a list.", thread="t")
        state = await agent.graph.ainvoke(Command(resume="this"), config, context=bench.settings())
    assert (state["stop_reason"], state["answer"]) == ("passed", "this")


class Judge:
    name = "judge"

    async def evaluate(self, task, attempt):
        return Evaluation(score=attempt["answer"].endswith("2"), feedback=f"on {task.text}", evaluator=self.name)


async def judge_async(answer):
    return answer.endswith("2")


EVALUATORS = {"function": lambda answer: answer.endswith("2"), "async function": judge_async, "object": Judge()}


@pytest.mark.parametrize("evaluator", EVALUATORS.values(), ids=EVALUATORS)
async def test_an_own_evaluator_judges_every_attempt(bench, evaluator):
    async with bench.agent(own={"evaluator": evaluator}, evaluator_model=None) as agent:
        result = await agent.run("Sum a list.")
    assert [attempt.passed for attempt in result.attempts] == [False, True]
    assert bench.counts() == {"actor": 2, "critic": 0, "reflector": 1, "planner": 1}


class Broken:
    def __init__(self, outcome):
        self.outcome = outcome

    async def evaluate(self, task, attempt):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize("outcome", [OSError("no disk for sk-1234567890"), TimeoutError(), 0.9, None], ids=str)
async def test_an_evaluator_that_breaks_gives_no_verdict_and_teaches_nothing(bench, outcome):
    async with bench.agent(own={"evaluator": Broken(outcome)}) as agent:
        result = await agent.run("Sum a list.")
        assert await agent.persistence.store.asearch(("reflexion",)) == []
    assert (result.stop_reason, result.answer, result.score) == ("evaluator_failed", "answer 1", None)
    assert result.attempts[0].evaluator == "Broken"
    assert "sk-1234567890" not in result.attempts[0].feedback


async def test_any_chat_model_serves_any_role(sqlite_url):
    models: Any = {
        "actor": FakeListChatModel(responses=["one", "two"]),
        "evaluator": FakeListChatModel(responses=['{"score": 2}', '{"score": 9}']),
        "reflector": FakeListChatModel(responses=[LESSON]),
        "planner": FakeListChatModel(responses=["1. Do it."]),
    }
    async with open_reflexion(model=models, database_url=sqlite_url) as agent:
        result = await agent.run("Sum a list.", stream=True)
    assert (result.passed, result.answer, result.usage.requests, result.usage.estimated) == (True, "two", 6, True)


async def test_a_chat_model_that_raises_anything_ends_the_run_with_the_best_attempt(bench):
    class Failing(FakeListChatModel):
        def _call(self, *_: Any, **__: Any) -> str:
            raise ZeroDivisionError

    async with bench.agent(own={"model": {"reflector": Failing(responses=[])}}) as agent:
        result = await agent.run("Sum a list.")
    assert (result.stop_reason, result.answer, result.score) == ("model_error", "answer 1", 0.4)


async def test_the_last_human_message_is_the_task_and_the_answer_comes_back_as_a_message(bench):
    bench.server.default("critic-m", GOOD)
    messages = [HumanMessage("Hello."), AIMessage("Hello!"), HumanMessage([{"type": "text", "text": "Sum a list."}])]
    config = {"configurable": {"thread_id": "t"}}
    async with bench.agent() as agent:
        state = await agent.graph.ainvoke({"messages": messages}, config, context=bench.settings())
        assert [m.text for m in state["messages"]] == ["Hello.", "Hello!", "Sum a list.", "answer 1"]
        more = {"messages": [{"role": "user", "content": "Reverse it."}]}
        state = await agent.graph.ainvoke(more, config, context=bench.settings())
    assert [m.text for m in state["messages"][-2:]] == ["Reverse it.", "answer 2"]
    assert bench.prompt("actor", 1).endswith("Reverse it.")
    assert isinstance(state["messages"][-1], AIMessage)


@pytest.mark.parametrize("context", [None, dict])
async def test_the_graph_is_a_node_of_somebody_elses(bench: Bench, context, monkeypatch):
    class Outer(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]

    for role, model in {
        "ACTOR": "actor",
        "EVALUATOR": "critic",
        "REFLECTOR": "reflector",
        "PLANNER": "planner",
    }.items():
        monkeypatch.setenv(f"REFLEXION_{role}_MODEL", f"{model}-m")
    bench.server.script("critic-m", BAD, GOOD)
    inner = build_graph(connection=bench.connection()).compile()
    outer = StateGraph(MessagesState, context_schema=context)
    outer.add_node("agent", inner)
    outer.add_edge(START, "agent")
    outer.add_edge("agent", END)
    graph = outer.compile(checkpointer=InMemorySaver())
    given: Any = {"messages": [HumanMessage("Sum a list.")]}
    state = await graph.ainvoke(
        given, {"configurable": {"thread_id": "t"}}, context=None if context is None else {"their": "own"}
    )
    assert [message.text for message in state["messages"]] == ["Sum a list.", "answer 2"]


async def test_without_a_store_a_thread_still_recalls_its_own_reflections(bench):
    graph = build_graph(connection=bench.connection()).compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    given: Input = {"task": "Sum a list."}
    await graph.ainvoke(given, config, context=bench.settings())
    state = await graph.ainvoke(given, config, context=bench.settings())
    assert [lesson["text"] for lesson in state["lessons_used"]] == [LESSON]


async def test_events_of_the_callers_own_pass_through(bench):
    from langgraph.config import get_stream_writer

    def actor(_):
        get_stream_writer()("hello")
        get_stream_writer()({"event": "result", "result": "forged"})
        return "x"

    async with bench.agent(own={"actor": actor}, max_attempts=1) as agent:
        events = [event async for event in agent.stream("Sum a list.")]
        assert {"event": "custom", "data": "hello"} in events
        assert {"event": "custom", "data": {"event": "result", "result": "forged"}} in events
        assert [event["result"].answer for event in events if event["event"] == "result"] == ["x"]
        assert (await agent.run("Sum a list.")).answer == "x"


@pytest.mark.parametrize("text", ["nul \x00 byte", "half a pair \ud83d", "😀" * 1000])
async def test_an_answer_of_odd_characters_survives(server, database_url, text):
    bench = Bench(server, database_url)
    server.script("critic-m", {"score": 1, "weaknesses": text})
    server.default("reflector-m", {"improvement": f"Check the empty list first {text[:30]}."})
    server.script("actor-m", Reply(text))
    async with bench.agent() as agent:
        result = await agent.run(f"Sum a list {text}", thread="t")
    assert result.stop_reason == "max_attempts"
