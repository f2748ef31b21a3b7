"""What LangSmith gets of a run: one tree with names, numbers and reasons, wherever the graph is run."""

import asyncio
from pathlib import Path

import langsmith
import pytest
from langchain_core.tracers.langchain import LangChainTracer
from langgraph.types import interrupt
from langsmith import run_trees
from loop_bench import GOOD, LESSON
from traced import flush

from reflexion.memory.choice import TRIED_FIRST
from reflexion.models import TraceClient
from reflexion.testing import FakeLangSmith, Reply

TASK = "Sum a list."
TREE = [
    (
        "reflexion",
        [
            ("recall", []),
            ("actor", [("actor attempt 1", [])]),
            ("evaluator", [("evaluator attempt 1", []), ("after_evaluator", [])]),
            ("reflector", [("reflector attempt 1", [])]),
            ("planner", [("planner attempt 1", []), ("after_planner", [])]),
            ("actor", [("actor attempt 2", [])]),
            ("evaluator", [("evaluator attempt 2", []), ("after_evaluator", [])]),
            ("remember", []),
        ],
    )
]
PRICES = {"prices": {"actor-m": {"input": 10, "output": 20, "cached_input": 1}}}


async def test_a_run_is_one_tree_in_order(bench, traces):
    async with bench.agent(max_attempts=2) as agent:
        await agent.run(TASK)
    flush()
    assert traces.tree() == TREE
    assert not any(run.pending for run in traces.runs)


def test_the_page_on_traces_shows_this_tree():
    page = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()

    def lines(tree, indent=""):
        return [line for name, below in tree for line in (indent + name, *lines(below, indent + "  "))]

    assert "\n".join(lines(TREE)) in page


async def test_a_stream_and_a_blocking_call_are_the_same_tree(bench, traces):
    async with bench.agent(max_attempts=2) as agent:
        async for _ in agent.stream(TASK):
            pass
    await asyncio.to_thread(bench.agent(max_attempts=2).run_sync, TASK)
    flush()
    assert traces.tree() == 2 * TREE


async def test_the_root_says_how_the_run_ended(bench, traces):
    async with bench.agent(max_attempts=2, threshold=0.7) as agent:
        first = await agent.run(TASK, thread="a")
        await agent.run(TASK, thread="b", max_attempts=1)
    flush()
    one, two = traces.named("reflexion")
    expected = {
        "thread_id": "a",
        "run_id": first.run_id,
        "threshold": 0.7,
        "stop_reason": "max_attempts",
        "score": 0.4,
        "passed": False,
        "attempts": 2,
        "lessons_used": [],
        "lessons_withheld": [],
        "lessons_learned": [first.lessons_learned[0]["id"]],
    }
    assert expected.items() <= one.metadata.items()
    assert "stop:max_attempts" in one.tags
    assert two.metadata["lessons_used"] == [first.lessons_learned[0]["id"]]
    assert one.metadata["task_id"] == two.metadata["task_id"]
    assert one.inputs["task"] == TASK
    assert one.outputs["stop_reason"] == "max_attempts"


async def test_another_task_has_another_id(bench, traces):
    async with bench.agent(max_attempts=1) as agent:
        await agent.run(TASK)
        await agent.run(TASK, criteria=["It is short."])
        await agent.graph.ainvoke(
            {"messages": [("human", TASK)]},
            {"configurable": {"thread_id": "m"}},
            context=bench.settings(max_attempts=1),
        )
    flush()
    plain, criteria, message = [run.metadata["task_id"] for run in traces.named("reflexion")]
    assert plain == message != criteria


async def test_a_step_says_what_it_worked_on(bench, traces):
    async with bench.agent(max_attempts=2) as agent:
        result = await agent.run(TASK, thread="t")
    flush()
    for name in ("actor", "evaluator"):
        steps = traces.named(name)
        assert [step.metadata["attempt"] for step in steps] == [1, 2]
        assert {step.metadata["role"] for step in steps} == {name}
        assert {step.metadata["run_id"] for step in steps} == {result.run_id}
        assert {step.metadata["thread_id"] for step in steps} == {"t"}


async def test_a_model_call_has_tokens_cost_and_models(bench, traces):
    reply = Reply("answer", usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 40}}, model="actor-m-2026")
    bench.server.script("actor-m", reply)
    async with bench.agent(max_attempts=1, connection=PRICES) as agent:
        result = await agent.run(TASK)
    flush()
    (call,) = traces.named("actor attempt 1")
    assert call.run_type == "llm"
    assert "actor" in call.tags
    usage = call.usage
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (100, 10, 110)
    assert usage["input_token_details"]["cache_read"] == 40
    assert usage["input_cost"] == pytest.approx(640e-6)
    assert usage["output_cost"] == pytest.approx(200e-6)
    assert usage["total_cost"] == pytest.approx(float(result.usage.by_role["actor"].cost_usd))
    expected = {
        "requested_model": "actor-m",
        "returned_model": "actor-m-2026",
        "price_source": "stated",
        "outcome": "ok",
        "role": "actor",
        "attempt": 1,
        "retry": 0,
        "run_id": result.run_id,
    }
    assert expected.items() <= call.metadata.items()


USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@pytest.mark.parametrize(
    ("prices", "source"), [({}, "unknown"), ({"prices": {"actor-m": {"input": 0, "output": 0}}}, "free")]
)
async def test_no_cost_is_shown_that_is_unknown_or_nothing(bench, traces, prices, source):
    async with bench.agent(max_attempts=1, connection=prices) as agent:
        await agent.run(TASK)
    flush()
    (call,) = traces.named("actor attempt 1")
    assert [name for name in call.usage if "cost" in name] == []
    assert call.metadata["price_source"] == source
    assert call.usage["input_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_usage_that_the_endpoint_keeps_to_itself_is_an_estimate_and_stays_one(bench, traces, stream):
    bench.server.script("actor-m", Reply("an answer", usage="missing"))
    async with bench.agent(max_attempts=1, stream=stream, connection=PRICES) as agent:
        result = await agent.run(TASK)
    flush()
    (call,) = traces.named("actor attempt 1")
    assert call.metadata["usage_estimated"] is True
    assert call.usage["output_tokens"] > 0
    assert call.usage["total_cost"] > 0
    assert result.usage.by_role["actor"].estimated


async def test_repeated_requests_are_told_apart(bench, traces):
    bench.server.script("actor-m", Reply(status=503, headers={"Retry-After": "0"}), "an answer")
    async with bench.agent(max_attempts=1, connection={"max_retries": 1}) as agent:
        await agent.run(TASK)
    flush()
    (first,), (second,) = traces.named("actor attempt 1"), traces.named("actor attempt 1, retry 1")
    assert (first.metadata["retry"], second.metadata["retry"]) == (0, 1)
    assert (first.metadata["outcome"], second.metadata["outcome"]) == ("overloaded", "ok")
    assert "503" in first.error
    assert not second.error
    assert "retry" in second.tags


async def test_what_an_endpoint_refused_is_asked_for_less(bench, traces):
    bench.server.refuse("response_format", model="critic-m")
    async with bench.agent(max_attempts=1) as agent:
        await agent.run(TASK)
    flush()
    assert traces.named("evaluator attempt 1")[0].error
    assert traces.named("evaluator attempt 1, asked for less")[-1].metadata["outcome"] == "ok"


async def test_the_graph_used_directly_is_traced_alike(bench, traces):
    async with bench.agent(max_attempts=2) as agent:
        config = {
            "configurable": {"thread_id": "t"},
            "run_name": "mine",
            "tags": ["nightly"],
            "metadata": {"ticket": 7},
        }
        state = await agent.graph.ainvoke({"task": TASK}, config)
    flush()
    assert traces.tree() == [("mine", TREE[0][1])]
    (root,) = traces.named("mine")
    assert root.metadata["stop_reason"] == state["stop_reason"] == "max_attempts"
    assert root.metadata["ticket"] == 7
    assert "nightly" in root.tags
    assert sorted(score["key"] for score in traces.feedback) == ["passed", "score", "score", "score"]


async def test_a_run_stands_below_what_called_it(bench, traces):
    @langsmith.traceable(name="my job")
    async def job(agent) -> None:
        await agent.run(TASK)

    async with bench.agent(max_attempts=2) as agent:
        await job(agent)
    flush()
    assert traces.tree() == [("my job", TREE)]
    assert traces.named("reflexion")[0].metadata["stop_reason"] == "max_attempts"


async def test_nothing_is_sent_where_tracing_is_off(bench, traces):
    with langsmith.tracing_context(enabled=False):
        async with bench.agent(max_attempts=1) as agent:
            await agent.run(TASK)
    flush()
    assert traces.requests == []


async def test_a_client_of_the_users_own_stays(bench, traces):
    with FakeLangSmith() as theirs:
        client = langsmith.Client(theirs.url, api_key="their-own-key")
        langsmith.configure(client=client)
        async with bench.agent(max_attempts=2) as agent:
            await agent.run(TASK)
        assert run_trees._CLIENT is client
        theirs.wait_for(lambda server: len(server.feedback) == 4)
        client.flush()
        assert theirs.tree() == TREE
        assert theirs.named("actor attempt 1")[0].metadata["outcome"] == "ok"
        run_trees._CLIENT = None
    assert traces.requests == []


async def test_a_tracer_among_the_callbacks_stays_the_only_one(bench, traces):
    with FakeLangSmith() as theirs:
        client = langsmith.Client(theirs.url, api_key="their-own-key")
        config = {"configurable": {"thread_id": "t"}, "callbacks": [LangChainTracer(client=client)]}
        async with bench.agent(max_attempts=2) as agent:
            await agent.graph.ainvoke({"task": TASK}, config)
        theirs.wait_for(lambda server: len(server.feedback) == 4)
        client.flush()
        assert theirs.tree() == TREE
    flush()
    assert traces.runs == []


async def test_a_cancelled_run_leaves_nothing_pending(bench, traces):
    bench.server.hold("critic-m")
    async with bench.agent(max_attempts=1) as agent:
        work = asyncio.create_task(agent.run(TASK, thread="t"))
        await bench.server.wait_for_async("critic-m", timeout_s=60)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    bench.server.release("critic-m")
    flush()
    assert traces.named("evaluator attempt 1")[0].metadata["outcome"] == "cancelled"
    assert [run.name for run in traces.runs if run.pending] == []


async def test_a_run_that_is_ended_leaves_nothing_pending(bench, traces):
    bench.server.hold("critic-m")
    async with bench.agent(max_attempts=1) as agent:
        work = asyncio.create_task(agent.run(TASK, thread="t"))
        await bench.server.wait_for_async("critic-m", timeout_s=60)
        await agent.cancel("t")
        await work
    bench.server.release("critic-m")
    flush()
    assert traces.named("reflexion")[0].metadata["stop_reason"] == "cancelled"
    assert [run.name for run in traces.runs if run.pending] == []


async def test_an_interrupt_leaves_nothing_pending(bench, traces):
    def ask(_: dict) -> str:
        return str(interrupt("which list?"))

    async with bench.agent(max_attempts=1, own={"actor": ask}) as agent:
        config = {"configurable": {"thread_id": "t"}}
        await agent.graph.ainvoke({"task": TASK}, config)
    flush()
    assert [run.name for run in traces.named("actor")] == ["actor", "actor"]
    assert [run.name for run in traces.runs if run.pending] == []


async def test_a_lesson_that_was_used_is_named_by_its_id_alone(bench, traces):
    async with bench.agent(max_attempts=2) as agent:
        await agent.run(TASK)
        bench.server.default("critic-m", GOOD)
        await agent.run(TASK)
    flush()
    last = traces.named("reflexion")[-1]
    assert len(last.metadata["lessons_used"]) == 1
    assert LESSON not in str(last.metadata)
    assert (last.metadata["stop_reason"], last.metadata["passed"]) == ("passed", True)


async def test_a_lesson_that_was_withheld_is_named_too(bench, traces):
    async with bench.agent(max_attempts=2) as agent:
        first = await agent.run(TASK)
        bench.server.default("critic-m", GOOD)
        for _ in range(TRIED_FIRST):
            await agent.run(TASK)
        await agent.run(TASK, memory_control=1)
    flush()
    last = traces.named("reflexion")[-1]
    assert last.metadata["lessons_used"] == []
    assert last.metadata["lessons_withheld"] == [first.lessons_learned[0]["id"]]


async def test_the_process_gets_one_client(bench, traces):
    async with bench.agent(max_attempts=1) as agent:
        await agent.run(TASK)
        client = run_trees._CLIENT
        await agent.run(TASK)
    await asyncio.to_thread(bench.agent(max_attempts=1).run_sync, TASK)
    assert isinstance(client, TraceClient)
    assert run_trees._CLIENT is client
