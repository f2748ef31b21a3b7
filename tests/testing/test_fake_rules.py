"""Refusals: which requests an endpoint turns down, and how."""

import openai
import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

ASK = [{"role": "user", "content": "hi"}]
JSON_OBJECT = {"response_format": {"type": "json_object"}}


def json_schema(**schema):
    form = {"name": "v", "strict": True, "schema": {"type": "object", "properties": {}, **schema}}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


CLOSED = {"additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
STRICT_TOOL = {
    "type": "function",
    "function": {"name": "f", "strict": True, "parameters": {"type": "object"}},
}


@pytest.mark.parametrize(
    ("rule", "refused", "allowed"),
    [
        ("response_format.type=json_schema", json_schema(), JSON_OBJECT),
        ("json_object without the word json", JSON_OBJECT, {}),
        ("tools", {"tools": [TOOL]}, {}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": "auto"}, {"tools": [TOOL]}),
        ("stream_options", {"stream": True, "stream_options": {"include_usage": True}}, {"stream": True}),
        ("max_tokens", {"max_tokens": None}, {"max_completion_tokens": 5}),
        ("max_tokens>16384", {"max_tokens": 20_000}, {"max_tokens": 16_384}),
        ("temperature!=1", {"temperature": 0}, {"temperature": 1.0}),
        ("temperature != 1", {"temperature": 0.2}, {}),
        ("strict schema with default", json_schema(properties={"a": {"default": 1}}), json_schema()),
        ("strict schema without additionalProperties", json_schema(), json_schema(**CLOSED)),
        ("strict schema without additionalProperties", {"tools": [STRICT_TOOL]}, {"tools": [TOOL]}),
        ("null value", {"stop": None}, {"stop": "x"}),
        (lambda body: len(body["messages"]) == 1, {}, {"messages": ASK * 2}),
    ],
)
async def test_a_rule_refuses_its_requests_and_no_others(server, client, rule, refused, allowed):
    server.refuse(rule)
    server.default("m", "fine")
    url = {"model": "m", "messages": ASK}
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**{**url, **refused})
    assert caught.value.type == "invalid_request_error"
    answer = await client.chat.completions.create(**{**url, **allowed})
    if allowed.get("stream"):
        await answer.close()


async def test_a_refusal_takes_nothing_from_the_queue_and_can_be_worded(server, client):
    server.script("m", "first")
    server.default("other", "free")
    error = {"message": "type not available", "param": "response_format", "code": None}
    server.refuse("response_format", status=422, error=error, model="m")
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        await client.chat.completions.create(model="m", messages=ASK, **JSON_OBJECT)
    assert caught.value.body == error
    await client.chat.completions.create(model="other", messages=ASK, **JSON_OBJECT)
    answer = await client.chat.completions.create(model="m", messages=ASK)
    assert answer.choices[0].message.content == "first"


async def test_langchain_meets_the_refusal_of_structured_output(server):
    class Verdict(BaseModel):
        score: int

    server.refuse("response_format.type=json_schema")
    server.default("m", {"score": 8})
    model = ChatOpenAI(model="m", base_url=server.base_url, api_key=SecretStr("any"), max_retries=0)
    with pytest.raises(openai.BadRequestError, match="response_format"):
        await model.with_structured_output(Verdict, method="json_schema").ainvoke("judge")
    fallback = model.with_structured_output(Verdict, method="function_calling")
    assert await fallback.ainvoke("judge") == Verdict(score=8)


def test_an_unreadable_rule_is_refused_at_once(server):
    with pytest.raises(ValueError, match="cannot read the rule 'no such rule'"):
        server.refuse("no such rule")
