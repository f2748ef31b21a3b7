"""A run hands its rubric, threshold, samples and model to the critic, and its expectations to the right evaluator."""

import pytest
from loop_bench import Bench

from reflexion.evaluators import Criterion
from reflexion.sandbox import layers


def by_criteria(correct, short):
    entries = [{"name": "correct", "score": correct}, {"name": "It is short.", "score": short}]
    return {"criteria": entries, "score": round((correct + short) / 2)}


async def test_weights_reach_the_score_from_python(bench: Bench):
    bench.server.script("critic-m", by_criteria(6, 10), by_criteria(10, 6))
    async with bench.agent() as agent:
        result = await agent.run("Sum.", criteria=[Criterion("correct", "It is right.", 3), "It is short."])
    assert [attempt.score for attempt in result.attempts] == pytest.approx([0.7, 0.9])
    assert result.attempts[1].criteria[0] == {"name": "correct", "score": 1.0, "why": ""}
    assert "1. correct: It is right. (weight 3)" in bench.prompt("critic", 0)


async def test_samples_are_asked_for_around_the_runs_own_threshold(bench: Bench):
    bench.server.script("critic-m", *({"score": score} for score in (6.2, 5.8, 6.1)))
    async with bench.agent(threshold=0.6, critic_samples=3) as agent:
        result = await agent.run("Sum.")
    assert (result.passed, len(result.attempts), bench.counts()["critic"]) == (True, 1, 3)
    assert [entry["score"] for entry in result.attempts[0].criteria] == pytest.approx([0.62, 0.58, 0.61])


async def test_seven_of_ten_reaches_a_threshold_of_seven_tenths(bench: Bench):
    bench.server.default("critic-m", {"score": 7})
    async with bench.agent(threshold=0.7) as agent:
        assert (await agent.run("Sum.")).passed


async def test_one_setting_gives_the_critic_another_model(bench: Bench, monkeypatch):
    monkeypatch.setenv("REFLEXION_EVALUATOR_MODEL", "judge-m")
    bench.server.default("judge-m", {"score": 9})
    from reflexion.graphs import Settings, open_reflexion

    agent = open_reflexion(Settings(model="actor-m"), connection=bench.connection(), database_url="memory://")
    async with agent:
        assert (await agent.run("Sum.")).passed
    assert [len(bench.server.requests_for(model)) for model in ("actor-m", "judge-m")] == [1, 1]


async def test_a_critic_that_cannot_judge_ends_the_run_and_teaches_nothing(bench: Bench):
    bench.server.default("critic-m", {"score": None, "reasoning": "the picture is missing"})
    async with bench.agent() as agent:
        result = await agent.run("Describe the picture.")
    assert (result.stop_reason, result.score) == ("evaluator_failed", None)
    assert "the picture is missing" in result.attempts[0].feedback
    assert bench.counts() == {"actor": 1, "critic": 1, "reflector": 0, "planner": 0}


async def test_outputs_on_inputs_are_asked_for_as_code_and_judged_in_the_sandbox(bench: Bench):
    bench.server.script("actor-m", "```python\ndef f(x): return x\n```", "```python\ndef f(x): return x * 2\n```")
    async with bench.agent(test_timeout_s=40) as agent:
        result = await agent.run("Write f.", expect={"inputs": [[1], [0]], "reference": "def f(x): return x + x"})
    assert [attempt.score for attempt in result.attempts] == [0.5, 1.0]
    assert "Reply with one Python code block" in bench.prompt("actor", 0)
    assert "f(1) == 2" in bench.prompt("actor", 1)


async def test_packages_are_allowed_by_a_setting_and_their_lack_costs_one_attempt(bench: Bench, monkeypatch):
    pytest.importorskip("numpy")
    bench.server.default("actor-m", "def ones(n):\n    import numpy\n    return numpy.ones(n)")
    tests = "import numpy as np\nassert np.array_equal(ones(2), np.array([1, 1]))"
    async with bench.agent(test_timeout_s=60) as agent:
        result = await agent.run("Write ones(n).", tests=tests)
    assert (result.stop_reason, result.score, bench.counts()["actor"]) == ("evaluator_failed", None, 1)
    monkeypatch.setenv("REFLEXION_SANDBOX_PACKAGES", "numpy")
    async with bench.agent(test_timeout_s=60) as agent:
        assert (await agent.run("Write ones(n).", tests=tests)).passed


async def test_a_strict_sandbox_is_a_setting_and_runs_nothing_half_protected(bench: Bench, monkeypatch):
    monkeypatch.setattr(layers, "missing_layers", lambda: ("seccomp",))
    async with bench.agent(sandbox_strict=True) as agent:
        result = await agent.run("Write f(n).", tests="assert f(1) == 1")
    assert (result.stop_reason, result.score, bench.counts()["actor"]) == ("evaluator_failed", None, 1)
    assert "seccomp" in result.attempts[0].feedback
