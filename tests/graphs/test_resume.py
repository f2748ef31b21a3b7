"""A killed run goes on where it was, and what was paid for and checkpointed is not paid for again."""

import os
import subprocess
import sys
from pathlib import Path

import broken_off
import pytest
from broken_off import Child
from loop_bench import LESSON, Bench

from reflexion.memory import Memory
from reflexion.testing import Reply

NEEDED = {"actor": 2, "critic": 2, "reflector": 1, "planner": 1}
KEY = "sk-very-secret-123"

NODES = ["actor", "critic", "reflector", "planner", "recall", "remember"]


def start(bench: Bench, *, slow: str = "", how: str = "task") -> Child:
    return Child(bench.server.base_url, bench.url, "t", slow, how)


def kill_in(bench: Bench, node: str) -> None:
    """Start a run and kill its process in the middle of a node."""
    slow = {"recall": "recall", "remember": "_make_room"}.get(node, "")
    bench.server.hold(f"{node}-m")
    child = start(bench, slow=slow)
    try:
        if slow:
            assert child.says() == "held"
        else:
            bench.server.wait_for(f"{node}-m", timeout_s=100)
    finally:
        child.kill()
    bench.server.release(f"{node}-m")


@pytest.mark.parametrize(
    ("node", "how"), [*((node, "task") for node in NODES), *((node, "none") for node in ("recall", "planner"))]
)
def test_a_killed_run_goes_on_from_its_last_checkpoint(server, sqlite_url, node, how):
    check(Bench(server, sqlite_url), node, how)


@pytest.mark.slow
@pytest.mark.parametrize("node", NODES)
def test_a_killed_run_goes_on_in_postgresql(server, postgres_url, node):
    check(Bench(server, postgres_url), node, "task")


def check(bench: Bench, node: str, how: str) -> None:
    kill_in(bench, node)
    done = bench.counts()
    result = start(bench, how=how).says()
    assert result["stop_reason"] == "max_attempts"
    assert [attempt["number"] for attempt in result["attempts"]] == [1, 2]
    assert bench.counts() == {role: count + (role == node) for role, count in NEEDED.items()}
    assert result["usage"]["requests"] == bench.server.count
    assert [lesson["text"] for lesson in result["lessons_learned"]] == [LESSON]
    finished = {role: count for role, count in done.items() if role != node}
    assert all(bench.counts()[role] >= count for role, count in finished.items())


async def test_a_lesson_is_counted_once_however_often_its_run_ends(bench):
    async with bench.agent(max_attempts=2) as agent:
        await agent.run(broken_off.TASK)
    kill_in(bench, "remember")
    kill_in(bench, "remember")
    async with bench.agent(max_attempts=2) as agent:
        await agent.run(broken_off.TASK, thread="t")
        (kept,) = await Memory(agent.persistence.store).lessons()
        episodes = await Memory(agent.persistence.store).episodes()
    assert (kept.seen, kept.used, kept.helped, len(episodes)) == (2, 1, 0, 2)


async def test_another_task_on_a_broken_off_thread_starts_afresh(bench):
    kill_in(bench, "critic")
    async with bench.agent() as agent:
        result = await agent.run("Reverse a text.", thread="t", max_attempts=1)
    assert len(result.attempts) == 1
    assert "Reverse a text." in bench.prompt("actor", 1)


@pytest.mark.parametrize("task", [broken_off.TASK, None])
async def test_a_run_of_which_only_the_input_was_written_down_begins(bench, task):
    async with bench.agent("memory://", max_attempts=2) as agent:
        await agent.run(broken_off.TASK, thread="t")
        saver = agent.persistence.checkpointer
        _, *later = sorted(saver.storage["t"][""])
        for checkpoint in later:
            del saver.storage["t"][""][checkpoint]
        saver.writes.clear()
        config = {"configurable": {"thread_id": "t"}}
        assert (await agent.graph.aget_state(config)).next == ("__start__",)
        result = await agent.run(task, thread="t")
    assert (result.stop_reason, result.usage.requests) == ("max_attempts", 6)


@pytest.mark.parametrize(
    ("ended", "again"), [("recall", (1, 1)), ("actor", (0, 1)), ("critic", (0, 0)), ("remember", (0, 0))]
)
async def test_a_node_that_had_ended_when_its_step_was_not_yet_written_down_is_not_run_again(bench, ended, again):
    async with bench.agent("memory://", max_attempts=1) as agent:
        first = await agent.run(broken_off.TASK, thread="t")
        saver = agent.persistence.checkpointer
        steps = sorted(saver.storage["t"][""])
        for checkpoint in steps[2 + ["recall", "actor", "critic", "remember"].index(ended) :]:
            del saver.storage["t"][""][checkpoint]
            saver.writes.pop(("t", "", checkpoint), None)
        result = await agent.run(broken_off.TASK, thread="t")
    assert result.run_id == first.run_id
    assert (bench.counts()["actor"] - 1, bench.counts()["critic"] - 1) == again


async def test_a_run_that_was_ended_still_ends_when_it_is_resumed_with_more_attempts(bench):
    kill_in(bench, "remember")
    async with bench.agent() as agent:
        result = await agent.run(broken_off.TASK, thread="t", max_attempts=9)
    assert result.stop_reason == "max_attempts"
    assert bench.counts() == NEEDED


async def test_a_broken_off_run_makes_use_of_raised_limits(bench):
    kill_in(bench, "planner")
    async with bench.agent() as agent:
        result = await agent.run(broken_off.TASK, thread="t", max_attempts=4)
    assert len(result.attempts) == 4


async def test_two_processes_cannot_work_on_one_thread_and_its_history_does_not_fork(bench):
    bench.server.hold("critic-m")
    first = start(bench)
    bench.server.wait_for("critic-m", timeout_s=100)
    assert start(bench).says() == "busy"
    assert bench.server.count == 2
    third = start(bench, how="wait")
    bench.server.release("critic-m")
    assert [child.says()["stop_reason"] for child in (first, third)] == ["max_attempts", "max_attempts"]
    assert bench.counts()["actor"] == 4
    async with bench.agent() as agent:
        config = {"configurable": {"thread_id": "t"}}
        history = [snapshot async for snapshot in agent.graph.aget_state_history(config)]
    parents = [
        snapshot.parent_config["configurable"]["checkpoint_id"] for snapshot in history if snapshot.parent_config
    ]
    assert len(history) > 16
    assert len(set(parents)) == len(parents) == len(history) - 1


def test_a_strict_serialiser_resumes_without_a_warning(bench):
    kill_in(bench, "planner")
    environment = os.environ | {"LANGGRAPH_STRICT_MSGPACK": "true"}
    arguments = [sys.executable, broken_off.__file__, bench.server.base_url, bench.url, "t", "", "task"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert "'stop_reason': 'max_attempts'" in done.stdout
    assert bench.counts() == NEEDED | {"planner": 2}


async def test_no_key_lies_in_the_database(bench):
    bench.server.script("planner-m", Reply.error(401, f"wrong key {KEY}", code="invalid_api_key"))
    kill_in(bench, "reflector")
    result = start(bench).says()
    assert result["stop_reason"] == "model_error"
    assert KEY not in str(result)
    async with bench.agent() as agent:
        config = {"configurable": {"thread_id": "raw", "openai_api_key": KEY}}
        await agent.graph.ainvoke({"task": "Sum a list."}, config, context=bench.settings(max_attempts=1))
    folder = Path(bench.url.removeprefix("sqlite:///")).parent
    stored = b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())
    assert b"Sum a list." in stored
    assert KEY.encode() not in stored
