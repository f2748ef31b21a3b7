"""What must not be in a trace is in no byte of it."""

import pytest
from loop_bench import counting
from pydantic import SecretStr
from traced import flush

from reflexion.models.redaction import LONGEST_TEXT, MOST_TEXT, traceable
from reflexion.testing import Reply

KEY = "correct-horse-battery-staple-42"
"""Nothing about it looks like a key."""


@pytest.mark.parametrize("how", ["task", "answer", "error", "configurable", "metadata", "feedback"])
async def test_our_key_never_arrives(bench, traces, how):
    task, config = "Sum a list.", {"configurable": {"thread_id": "t"}}
    match how:
        case "task":
            task = f"Call the endpoint with {KEY} and sk-proj-abcdef123456."
        case "answer":
            bench.server.default("actor-m", f"print({KEY!r})")
        case "error":
            bench.server.default("actor-m", Reply.error(401, f"wrong key {KEY}", code="invalid_api_key"))
        case "configurable":
            config["configurable"]["openai_api_key"] = KEY
        case "metadata":
            config["metadata"] = {"note": {"header": f"Bearer {KEY}"}}
        case "feedback":
            bench.server.default("critic-m", {"score": 3, "weaknesses": f"it shows {KEY}", "improvements": KEY})
    async with bench.agent(max_attempts=1, connection={"api_key": SecretStr(KEY)}) as agent:
        await agent.graph.ainvoke({"task": task}, config)
        await agent.run(task)
    flush()
    assert len(traces.named("recall")) == 2
    assert KEY.encode() not in traces.bodies
    assert b"sk-proj-abcdef" not in traces.bodies


async def test_the_tracing_key_is_in_the_header_alone(bench, traces):
    key = traces.environment()["LANGSMITH_API_KEY"]
    async with bench.agent(max_attempts=1) as agent:
        await agent.run(f"Say {key}.")
    flush()
    assert key.encode() not in traces.bodies
    assert {request.headers["x-api-key"] for request in traces.requests} == {key}


async def test_one_setting_hides_all_content_and_leaves_the_numbers(bench, traces):
    task, answer, why = "a very private task", "a very private answer", "a very private reason"
    bench.server.default("actor-m", answer)
    judged = [{"name": "very private", "score": 4, "why": why}]
    bench.server.default("critic-m", {"score": 4, "weaknesses": why, "improvements": why, "criteria": judged})
    bench.server.default("planner-m", Reply.error(400, f"cannot read {why}"))
    async with bench.agent(max_attempts=2, connection={"trace_content": False}) as agent:
        result = await agent.run(task, criteria=["very private"])
    flush()
    assert result.stop_reason == "model_error"
    assert b"very private" not in traces.bodies
    (call,) = traces.named("actor attempt 1")
    assert (call.inputs, call.outputs) == ({}, {})
    assert call.usage["input_tokens"] > 0
    assert traces.named("reflexion")[0].metadata["stop_reason"] == "model_error"
    assert traces.named("planner attempt 1")[0].error
    assert [f.get("score") for f in traces.feedback if f["key"] == "score"] == [0.4, 0.4]
    assert {f["key"] for f in traces.feedback} == {"score", "passed", "criterion_1"}
    assert {f.get("comment") for f in traces.feedback} == {None}


def test_the_environment_can_hide_content(monkeypatch):
    from reflexion.models import ConnectionSettings

    monkeypatch.setenv("REFLEXION_TRACE_CONTENT", "false")
    assert ConnectionSettings().trace_content is False


async def test_a_huge_answer_is_cut_before_it_is_sent(bench, traces):
    size = 10_000_000
    bench.server.default("actor-m", "x" * size)
    async with bench.agent(max_attempts=1) as agent:
        result = await agent.run("Sum a list.")
    flush()
    assert len(result.answer) == size
    assert len(traces.bodies) < 2_000_000
    answer = traces.named("reflexion")[0].outputs["answer"]
    assert answer == "x" * LONGEST_TEXT + f"… [{size - LONGEST_TEXT:,} characters cut]"


async def test_many_attempts_are_cut_as_a_whole(bench, traces):
    bench.server.default("actor-m", counting("y" * 15_000))
    async with bench.agent(max_attempts=20, patience=20) as agent:
        result = await agent.run("Sum a list.")
    flush()
    assert len(result.attempts) == 20
    (root,) = traces.named("reflexion")
    assert MOST_TEXT < len(str(root.outputs)) < 1.2 * MOST_TEXT


def test_no_half_of_a_key_is_left_at_a_cut():
    from reflexion.models.redaction import keep_secret

    keep_secret(KEY)
    text = "z" * (LONGEST_TEXT - 10) + KEY + "z" * 100
    assert KEY[:5] not in traceable(text)


def test_anything_becomes_plain_json():
    import json
    from dataclasses import dataclass

    @dataclass
    class Thing:
        key: str

    class Own:
        def __repr__(self) -> str:
            return f"Own({KEY})"

    nested: list = []
    nested.append(nested)
    shown = traceable({"a": [Thing("sk-abcdef123456"), Own(), b"sk-abcdef123456"], ("b", 1): {1.5}, "c": nested})
    assert "abcdef" not in json.dumps(shown)
    assert shown["a"][2] == "[15 bytes]"
