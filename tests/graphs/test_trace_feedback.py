"""Scores arrive as feedback, once, also of a run whose process was killed."""

import os
import subprocess
import sys
from collections import Counter

import broken_off
import pytest
from loop_bench import BAD
from traced import flush

from reflexion.evaluators import Evaluation
from reflexion.graphs import ReviewPending
from reflexion.testing import Reply

TASK = broken_off.TASK


def scores(traces) -> list[tuple[str, str, float]]:
    """Name of the traced run, key and score of all feedback."""
    names = {run.id: run.name for run in traces.runs}
    return sorted((names[feedback["run_id"]], feedback["key"], feedback["score"]) for feedback in traces.feedback)


async def test_every_score_stands_at_the_step_that_gave_it(bench, traces):
    bench.server.script("critic-m", BAD, {"score": 10, "strengths": "complete"})
    async with bench.agent(max_attempts=2) as agent:
        await agent.run(TASK)
    flush()
    assert scores(traces) == [
        ("evaluator", "score", 0.4),
        ("evaluator", "score", 1.0),
        ("reflexion", "passed", 1.0),
        ("reflexion", "score", 1.0),
    ]
    first, second = traces.named("evaluator")
    by_run = {feedback["run_id"]: feedback for feedback in traces.feedback if feedback["run_id"] != first.trace_id}
    assert "the empty list is forgotten" in by_run[first.id]["comment"]
    assert by_run[first.id]["feedback_source"]["metadata"] == {"evaluator": "critic"}
    assert {feedback["trace_id"] for feedback in traces.feedback} == {second.trace_id}


async def test_every_criterion_has_a_score_of_its_own(bench, traces):
    criteria = [
        {"name": "Handles the empty list", "score": 0.5, "why": "it is forgotten"},
        {"name": "Names", "score": None, "why": "not looked at"},
    ]

    def judge(answer: str) -> Evaluation:
        return Evaluation(score=0.75, feedback="nearly", criteria=criteria, evaluator=f"mine {len(answer)}")

    async with bench.agent(max_attempts=1, own={"evaluator": judge}) as agent:
        await agent.run(TASK)
    flush()
    assert ("evaluator", "criterion_handles_the_empty_list", 0.5) in scores(traces)
    (why,) = [f["comment"] for f in traces.feedback if f["key"] == "criterion_handles_the_empty_list"]
    assert why == "it is forgotten"
    assert {f["key"] for f in traces.feedback} == {"score", "passed", "criterion_handles_the_empty_list"}


async def test_no_verdict_sends_nothing(bench, traces):
    bench.server.default("critic-m", "no score at all")
    async with bench.agent(max_attempts=2) as agent:
        result = await agent.run(TASK)
    flush()
    assert result.stop_reason == "evaluator_failed"
    assert traces.feedback == []
    assert "passed" in traces.named("reflexion")[0].metadata


async def test_the_same_feedback_has_the_same_id_and_another_run_another(bench, traces):
    async with bench.agent(max_attempts=1) as agent:
        await agent.run(TASK)
        await agent.run(TASK)
    flush()
    assert len(traces.feedback) == 6
    assert {feedback["id"][14] for feedback in traces.feedback} == {"5"}


async def test_a_run_that_is_reviewed_is_scored_once(bench, traces):
    bench.server.script("critic-m", BAD, {"score": 10})
    async with bench.agent(review="both") as agent:
        with pytest.raises(ReviewPending):
            await agent.run(TASK, thread="t")
        with pytest.raises(ReviewPending):
            await agent.run(thread="t", decision="approve")
        result = await agent.run(thread="t", decision={"action": "edit", "answer": "mine"})
    flush()
    assert [name for name, _ in traces.tree()] == ["reflexion"] * 3
    assert {run.metadata["run_id"] for run in traces.named("reflexion")} == {result.run_id}
    assert [run.name for run in traces.runs if run.pending] == []
    assert Counter((f["key"], f["score"]) for f in traces.feedback) == {
        ("score", 0.4): 1,
        ("score", 1.0): 3,
        ("passed", 1.0): 1,
    }


def start(bench, traces) -> subprocess.Popen:
    arguments = [sys.executable, broken_off.__file__, bench.server.base_url, bench.url, "t", "", "task"]
    return subprocess.Popen(arguments, env=os.environ | traces.environment(), stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("arrived", [True, False], ids=["after its score arrived", "before its score arrived"])
def test_a_run_that_is_killed_and_resumed_is_scored_once(bench, traces, arrived):
    if not arrived:
        traces.misbehave(Reply(status=403))
    bench.server.hold("planner-m")
    process = start(bench, traces)
    try:
        bench.server.wait_for("planner-m", timeout_s=100)
        if arrived:
            traces.wait_for(lambda server: server.feedback, timeout_s=100)
    finally:
        process.kill()
        process.communicate()
    bench.server.release("planner-m")
    traces.behave()
    stdout, _ = start(bench, traces).communicate(timeout=100)
    assert "'stop_reason': 'max_attempts'" in stdout
    assert Counter(feedback["key"] for feedback in traces.feedback) == {"score": 3, "passed": 1}
    (root,) = [run for run in traces.named("reflexion") if not run.pending]
    at_root = [feedback["key"] for feedback in traces.feedback if feedback["run_id"] == root.id]
    assert Counter(at_root) == ({"passed": 1, "score": 2})
