"""What a well-behaved answer looks like to the real clients."""

import json

import pytest
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, NotFoundError
from pydantic import BaseModel, SecretStr

from reflexion.testing import FakeOpenAI, Reply, count_tokens, prompt_tokens

ASK = [{"role": "user", "content": "How good is it?"}]
TOOL = {
    "type": "function",
    "function": {"name": "verdict", "parameters": {"type": "object", "properties": {}}},
}


class Verdict(BaseModel):
    score: int


def chat(server: FakeOpenAI, **options) -> ChatOpenAI:
    key = SecretStr("any")
    return ChatOpenAI(model="m", base_url=server.base_url, api_key=key, max_retries=0, timeout=60, **options)


async def streamed(client: AsyncOpenAI, **options):
    stream = await client.chat.completions.create(model="m", messages=ASK, stream=True, **options)
    return [chunk async for chunk in stream]


def text_of(chunks) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


async def test_each_model_has_its_queue_and_then_its_default(server, client):
    server.script("m", "first", lambda body: body["messages"][0]["content"])
    server.script("m", "third")
    server.default("m", "always")
    server.script("other", "mine")

    async def ask(model: str):
        return (await client.chat.completions.create(model=model, messages=ASK)).choices[0].message.content

    assert [await ask("m") for _ in range(5)] == ["first", ASK[0]["content"], "third", "always", "always"]
    assert await ask("other") == "mine"
    assert [model.id async for model in client.models.list()] == ["m", "other"]


async def test_a_model_without_a_reply_does_not_exist(server, client):
    server.script("m", "only one")
    await client.chat.completions.create(model="m", messages=ASK)
    for model in ("m", "typo"):
        with pytest.raises(NotFoundError) as caught:
            await client.chat.completions.create(model=model, messages=ASK)
        assert caught.value.code == "model_not_found"


async def test_requests_are_recorded_byte_for_byte(server, client):
    server.script("m", "yes")
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "{a} {{b}} %s ü"}])
    (seen,) = server.requests_for("m")
    assert seen.body["messages"][0]["content"] == "{a} {{b}} %s ü"
    assert json.loads(seen.raw) == seen.body
    assert seen.headers["authorization"] == "Bearer any"
    assert (seen.path, seen.index, server.count) == ("/v1/chat/completions", 0, 1)


async def test_counted_usage_can_be_foretold(server, client):
    reply = Reply("x" * 9, cached_tokens=2, reasoning_tokens=5)
    server.script("m", reply)
    usage = (await client.chat.completions.create(model="m", messages=ASK)).usage
    assert usage.prompt_tokens == prompt_tokens({"messages": ASK}) == 3 + 4
    assert usage.completion_tokens == count_tokens("x" * 9) + 5 == 8
    assert usage.total_tokens == 15
    assert usage.prompt_tokens_details.cached_tokens == 2
    assert usage.completion_tokens_details.reasoning_tokens == 5


@pytest.mark.parametrize(
    ("usage", "sent"),
    [
        (None, {"usage": None}),
        ("missing", {}),
        ({"prompt_tokens": None, "completion_tokens": 7}, None),
    ],
)
async def test_usage_can_be_null_missing_or_broken(server, client, usage, sent):
    server.script("m", Reply("x", usage=usage))
    raw = await client.chat.completions.with_raw_response.create(model="m", messages=ASK)
    body = json.loads(raw.content)
    assert {key: body[key] for key in body if key == "usage"} == ({"usage": usage} if sent is None else sent)


async def test_a_stream_adds_up_to_the_content(server, client):
    server.default("m", 'naïve {"score": 8} 🙂')
    chunks = await streamed(client)
    assert text_of(chunks) == 'naïve {"score": 8} 🙂'
    assert len(chunks) > 4
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


async def test_a_stream_has_usage_only_when_asked(server, client):
    server.script("m", "12345678")
    chunks = await streamed(client, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 2


@pytest.mark.parametrize(("place", "carriers"), [("none", 0), ("last", 1), ("final", 1), ("every", 4)])
async def test_a_stream_has_usage_where_the_script_puts_it(server, client, place, carriers):
    server.script("m", Reply("12345678", stream_usage=place))
    chunks = await streamed(client, stream_options={"include_usage": True} if place == "none" else {})
    assert sum(chunk.usage is not None for chunk in chunks) == carriers
    assert (chunks[-1].choices == []) is (place == "final")


async def test_explicit_chunks_go_out_as_they_are(server, client):
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "z"}
    server.script("m", Reply(chunks=[{**chunk, "choices": [{"index": 0, "delta": {"content": "hi"}}]}, chunk]))
    assert [received.model for received in await streamed(client)] == ["z", "z"]


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_arrive_whole(server, stream):
    server.script("m", Reply.tool("verdict", {"score": 8}))
    model = chat(server, streaming=stream).bind_tools([TOOL])
    message = await model.ainvoke("judge")
    assert [(call["name"], call["args"]) for call in message.tool_calls] == [("verdict", {"score": 8})]
    assert message.response_metadata["finish_reason"] == "tool_calls"


async def test_a_tool_call_can_be_broken(server):
    server.script("m", Reply.tool("verdict", '{"score": '))
    message = await chat(server).bind_tools([TOOL]).ainvoke("judge")
    assert message.invalid_tool_calls[0]["args"] == '{"score": '


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
async def test_one_scripted_dict_serves_every_way_to_ask_for_structure(server, method):
    server.script("m", {"score": 8})
    model = chat(server).with_structured_output(Verdict, method=method)
    assert await model.ainvoke("judge, in JSON") == Verdict(score=8)


async def test_a_refusal_arrives_as_a_refusal(server, client):
    server.default("m", Reply(None, refusal="I can't help."))
    message = await chat(server).ainvoke("judge")
    assert (message.content, message.additional_kwargs["refusal"]) == ("", "I can't help.")
    deltas = [choice.delta for chunk in await streamed(client) for choice in chunk.choices]
    assert "".join(delta.refusal or "" for delta in deltas) == "I can't help."


async def test_reasoning_finish_reason_and_model_name_are_scripted(server, client):
    reply = Reply("", reasoning_content='{"score": 8}', finish_reason="length", model="m-2026-01-01")
    server.default("m", reply)
    plain = await client.chat.completions.create(model="m", messages=ASK)
    assert plain.choices[0].message.model_extra["reasoning_content"] == '{"score": 8}'
    assert (plain.choices[0].finish_reason, plain.model) == ("length", "m-2026-01-01")
    deltas = [choice.delta for chunk in await streamed(client) for choice in chunk.choices]
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == '{"score": 8}'
