"""What a thread keeps from run to run: its reflections, its messages, and nothing else."""

import json

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from loop_bench import BAD, GOOD, LESSON, Bench

from reflexion.graphs import ConfigurationError, build_graph
from reflexion.memory import Memory, Reflection, merge_reflections
from reflexion.memory.records import KEPT_REFLECTIONS

THREAD = {"configurable": {"thread_id": "t"}}


async def test_three_runs_on_one_thread_each_start_afresh(server, database_url):
    bench = Bench(server, database_url)
    async with bench.agent(memory=False) as agent:
        for number, task in enumerate(["Sum a list.", "Reverse a string.", "Reverse a string."], 1):
            before = bench.server.count
            result = await agent.run(task, thread="t", max_attempts=2)
            assert [attempt.number for attempt in result.attempts] == [1, 2]
            assert result.usage.requests == bench.server.count - before == 6
            assert result.answer == f"answer {2 * number - 1}"
            values = (await agent.graph.aget_state(THREAD)).values
            assert len(values["calls"]) == 6
    for number in (2, 4):
        first = bench.prompt("actor", number)
        assert "Reverse a string." in first
        assert "Sum a list." not in first
        assert LESSON not in first
        assert "empty list" not in first


async def test_none_on_a_finished_thread_does_nothing_and_says_so(bench):
    async with bench.agent() as agent:
        await agent.run("Sum a list.", thread="t")
        count = bench.server.count
        with pytest.raises(ConfigurationError, match="nothing unfinished"):
            await agent.run(None, thread="t")
        with pytest.raises(ConfigurationError, match="nothing unfinished"):
            await agent.run(None, thread="another")
    assert bench.server.count == count


async def test_the_input_of_a_run_does_not_leak_into_the_next(bench):
    bench.server.default("critic-m", GOOD)
    bench.server.default("actor-m", "```python\ndef f():\n    return 1\n```")
    async with bench.agent() as agent:
        judged = await agent.run("Write f.", tests="assert f() == 1", thread="t")
        assert judged.attempts[0].evaluator == "unit_tests"
        state = await agent.graph.ainvoke({"task": "Write a poem."}, THREAD, context=bench.settings())
        spec = (await agent.graph.aget_state(THREAD)).values["spec"]
    assert spec == {"text": "Write a poem.", "tests": "", "expect": None, "criteria": [], "from_messages": False}
    assert state["attempts"][0]["evaluator"] == "critic"


async def test_what_a_refused_input_held_does_not_leak_and_does_not_block_its_thread(bench):
    bench.server.default("critic-m", GOOD)
    async with bench.agent() as agent:
        with pytest.raises(ConfigurationError, match="give"):
            await agent.graph.ainvoke(
                {"task": "Write f.", "tests": "assert f() == 1", "expect": "1"}, THREAD, context=bench.settings()
            )
        result = await agent.run("Write a poem.", thread="t")
        spec = (await agent.graph.aget_state(THREAD)).values["spec"]
    assert result.passed
    assert (spec["tests"], spec["expect"]) == ("", None)


async def test_a_thread_keeps_its_reflections_and_has_no_lessons_of_another_namespace(bench):
    async with bench.agent(namespace="one") as agent:
        await agent.run("Sum a list of numbers.", thread="t")
    async with bench.agent(namespace="another") as agent:
        result = await agent.run("Sum a list of numbers.", thread="t")
        values = (await agent.graph.aget_state(THREAD)).values
    assert result.lessons_used == ()
    assert len(values["reflections"]) == 4


async def test_without_a_store_a_thread_recalls_its_own_reflections(bench):
    graph = build_graph(settings=bench.settings(), connection=bench.connection()).compile(checkpointer=InMemorySaver())
    first = await graph.ainvoke({"task": "Sum a list of numbers."}, THREAD)
    second = await graph.ainvoke({"task": "Sum a list of numbers."}, THREAD)
    assert first["lessons_used"] == []
    assert [lesson["text"] for lesson in second["lessons_used"]] == [LESSON]


async def test_memory_off_neither_reads_nor_writes_anything_that_outlives_the_run(bench):
    async with bench.agent() as agent:
        await agent.run("Sum a list.", thread="t")
        result = await agent.run("Sum a list.", thread="t", memory=False)
        values = (await agent.graph.aget_state(THREAD)).values
        lessons = await Memory(agent.persistence.store).lessons()
    assert result.lessons_used == result.lessons_learned == ()
    assert len(values["reflections"]) == 2
    assert [lesson.seen for lesson in lessons] == [1]
    assert LESSON not in bench.prompt("actor", 3)
    assert LESSON in bench.prompt("actor", 4)


def reflection(number: int) -> Reflection:
    return Reflection(id=str(number), run_id="r", task="t", attempt=1, text=f"{number}", what_failed="", created_at=0.0)


def test_reflections_are_bounded_and_a_repeated_step_adds_none():
    kept = merge_reflections(None, [reflection(number) for number in range(KEPT_REFLECTIONS)])
    assert merge_reflections(kept, [reflection(KEPT_REFLECTIONS - 1)]) == kept
    kept = merge_reflections(kept, [reflection(KEPT_REFLECTIONS)])
    assert [entry["id"] for entry in kept] == [str(number) for number in range(1, KEPT_REFLECTIONS + 1)]


async def test_the_graph_used_directly_has_the_agents_settings(bench):
    async with bench.agent(max_attempts=2) as agent:
        state = await agent.graph.ainvoke({"task": "Sum a list."}, THREAD)
    assert len(state["attempts"]) == 2
    assert bench.counts()["actor"] == 2


async def test_the_whole_state_is_plain_json(bench):
    bench.server.script("critic-m", BAD, GOOD)
    async with bench.agent() as agent:
        await agent.run("Sum a list.", criteria=["It is right."], thread="t")
        async for snapshot in agent.graph.aget_state_history(THREAD):
            values = {key: value for key, value in snapshot.values.items() if key != "messages"}
            assert json.loads(json.dumps(values, allow_nan=False)) == values


@pytest.mark.filterwarnings("error")
async def test_a_thread_whose_fields_had_other_names_goes_on_with_its_reflections(bench):
    async with bench.agent(max_attempts=2) as agent:
        await agent.run("Sum a list.", thread="t")
        saved = await agent.persistence.checkpointer.aget_tuple(THREAD)
        values = dict(saved.checkpoint["channel_values"])
        for name in ("lessons_withheld", "own_tests", "elapsed_s", "review", "settings"):
            values.pop(name, None)
        old = saved.checkpoint | {"channel_values": values | {"critique": {"of": "an older version"}}}
        await agent.persistence.checkpointer.aput(saved.parent_config, old, saved.metadata, {})
    async with bench.agent(max_attempts=2) as agent:
        before = (await agent.graph.aget_state(THREAD)).values
        assert not {"critique", "lessons_withheld"} & set(before)
        result = await agent.run("Reverse a string.", thread="t")
        after = (await agent.graph.aget_state(THREAD)).values
    assert [attempt.number for attempt in result.attempts] == [1, 2]
    assert after["reflections"][0] == before["reflections"][0]
    assert len(after["reflections"]) == 2


async def test_a_callers_evaluator_cannot_put_its_own_types_into_the_state(bench):
    class Number(float): ...

    class Text(str):
        __slots__ = ()

    class Judge:
        name = Text("judge")

        async def evaluate(self, task, attempt):
            from reflexion.evaluators import Evaluation

            return Evaluation(
                score=Number(0.5), feedback=Text("x" * 1_000_000), checks=(Text("c"),), evaluator=self.name
            )

    async with bench.agent(own={"evaluator": Judge()}) as agent:
        await agent.run("Sum a list.", thread="t", max_attempts=1)
        attempt = (await agent.graph.aget_state(THREAD)).values["attempts"][0]
    assert type(attempt["score"]) is float
    assert {type(attempt[key]) for key in ("feedback", "evaluator")} == {str}
    assert type(attempt["checks"][0]) is str
    assert len(attempt["feedback"]) <= 10_000
