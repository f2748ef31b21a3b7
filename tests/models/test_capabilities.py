"""An endpoint's refusals are discovered once, and nothing refused is sent again as it was."""

import asyncio
import json

import pytest
from endpoint import PROMPT, VERDICT

from reflexion.models import ModelError, ask_structured, object_of
from reflexion.models.capabilities import Capabilities, Sent
from reflexion.testing import Reply

SCHEMA, OBJECT, TOOL = "response_format.type=json_schema", "response_format.type=json_object", "tool_choice"


def ways(bodies):
    """How each request asked for JSON."""
    return ["tool" if "tools" in body else (body.get("response_format") or {}).get("type", "plain") for body in bodies]


async def verdict(endpoint, client=None):
    read = await ask_structured(client or endpoint.client(), PROMPT, endpoint.meter(), VERDICT, object_of)
    return read.value


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    ("refused", "path"),
    [
        ([], ["json_schema"]),
        ([SCHEMA], ["json_schema", "tool"]),
        ([SCHEMA, TOOL], ["json_schema", "tool", "json_object"]),
        ([SCHEMA, TOOL, OBJECT], ["json_schema", "tool", "json_object", "plain"]),
    ],
)
async def test_each_refusal_is_paid_for_once_per_endpoint_and_model(endpoint, refused, path, status):
    for rule in refused:
        endpoint.server.refuse(rule, status=status)
    endpoint.server.default("m", {"score": 8})
    assert await verdict(endpoint) == {"score": 8}
    assert await verdict(endpoint, endpoint.models().client("planner", "m")) == {"score": 8}
    assert ways(endpoint.bodies) == [*path, path[-1]]
    assert len({request.raw for request in endpoint.server.requests}) == len(path)


async def test_another_model_at_the_same_endpoint_is_asked_the_strict_way(endpoint):
    endpoint.server.refuse(SCHEMA, model="m")
    endpoint.server.default("m", {"score": 8})
    endpoint.server.default("n", {"score": 8})
    await verdict(endpoint)
    await verdict(endpoint, endpoint.client("n"))
    assert ways(endpoint.bodies) == ["json_schema", "tool", "json_schema"]


async def test_requests_at_the_same_time_do_not_skip_a_rung(endpoint):
    endpoint.server.refuse(SCHEMA)
    endpoint.server.default("m", {"score": 8})
    client = endpoint.client()
    assert await asyncio.gather(*(verdict(endpoint, client) for _ in range(8))) == [{"score": 8}] * 8
    assert client.capabilities.rung == "tool"
    assert client.capabilities.learned == ["no json_schema"]


def error(message, param="response_format"):
    return {"message": message, "type": "invalid_request_error", "param": param, "code": None}


@pytest.mark.parametrize(
    "refusal",
    [
        {"error": error("type not available")},
        {"error": error("Invalid schema for response_format 'verdict'", None)},
        {"detail": [{"loc": ["body", "response_format", "type"], "msg": "Input should be 'text'"}]},
        {"error": {"message": "This model does not support structured output"}},
        {"error": "json_schema is not supported"},
        {"object": "error", "message": "json_schema is not supported", "code": 400},
    ],
)
async def test_a_refusal_is_understood_however_it_is_put(endpoint, refusal):
    endpoint.server.script("m", Reply(status=422, body=refusal), {"score": 8})
    assert await verdict(endpoint) == {"score": 8}
    assert ways(endpoint.bodies) == ["json_schema", "tool"]


async def test_schemas_are_as_strict_endpoints_want_them(endpoint):
    endpoint.server.refuse("strict schema with default")
    endpoint.server.refuse("strict schema without additionalProperties")
    endpoint.server.default("m", {"score": 8})
    await verdict(endpoint)
    assert endpoint.server.count == 1


async def test_json_object_is_asked_for_with_the_word_json(endpoint):
    for rule in (SCHEMA, TOOL, "json_object without the word json"):
        endpoint.server.refuse(rule)
    endpoint.server.default("m", {"score": 8})
    assert await verdict(endpoint) == {"score": 8}
    assert endpoint.server.count == 3


@pytest.mark.parametrize(
    "words",
    [
        "messages must alternate between user and assistant",
        "We could not parse the JSON body of your request",
        "unknown role",
        "invalid value",
    ],
)
async def test_a_bad_request_that_has_nothing_to_do_with_it_is_one_request(endpoint, words):
    endpoint.server.default("m", Reply.error(400, words))
    with pytest.raises(ModelError) as raised:
        await endpoint.ask(structure=VERDICT, temperature=0.5, max_tokens=100)
    assert raised.value.kind == "bad_request"
    assert endpoint.server.count == 1


async def test_the_words_of_an_address_are_no_refusal(endpoint):
    said = ModelError("bad_request", "http://tools.test/json_schema/v1 answered 400: no", said="no")
    assert not Capabilities().learn(said, Sent(rung="json_schema", stream_usage=True, temperature=True))


@pytest.mark.parametrize("stream", [False, True])
async def test_no_key_is_sent_with_null(endpoint, stream):
    endpoint.server.refuse("null value")
    endpoint.server.default("m", "fine")
    await endpoint.ask(on_token=(lambda _: None) if stream else None)
    assert set(endpoint.bodies[0]) <= {"messages", "model", "stream", "stream_options"}


async def test_max_completion_tokens_becomes_max_tokens_becomes_nothing(endpoint):
    endpoint.server.default("m", "fine")
    client = endpoint.client()
    await endpoint.ask(client, max_tokens=100)
    endpoint.server.refuse("max_completion_tokens")
    await endpoint.ask(client, max_tokens=100)
    endpoint.server.refuse("max_tokens")
    await endpoint.ask(client, max_tokens=100)
    await endpoint.ask(client, max_tokens=100)
    limits = [{k: v for k, v in body.items() if k.startswith("max_")} for body in endpoint.bodies]
    new, old = {"max_completion_tokens": 100}, {"max_tokens": 100}
    assert limits == [new, new, old, old, {}, {}]


CONTEXT = "max_tokens is too large: 20000. The maximum context length is 8192 and your request has 30 input tokens"


@pytest.mark.parametrize(
    ("words", "cap"),
    [
        ("max_tokens is too large: 20000. This model supports at most 16384 completion tokens", 16384),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8,192]", 8192),
        (CONTEXT, 4096),
    ],
)
async def test_a_limit_that_is_too_large_is_lowered_to_what_the_endpoint_takes(endpoint, words, cap):
    endpoint.server.refuse(f"max_completion_tokens>{cap}", error=error(words, None))
    endpoint.server.default("m", "fine")
    client = endpoint.client()
    await endpoint.ask(client, max_tokens=20000)
    await endpoint.ask(client, max_tokens=20000)
    assert [body["max_completion_tokens"] for body in endpoint.bodies] == [20000, cap, cap]


async def test_a_name_with_digits_is_not_taken_for_a_limit(endpoint):
    said = "Unsupported parameter: 'max_completion_tokens' exceeds what gpt-4o-2024-08-06 and model-100 know"
    endpoint.server.refuse("max_completion_tokens", error=error(said, "max_completion_tokens"))
    endpoint.server.default("m", "fine")
    await endpoint.ask(max_tokens=20000)
    assert endpoint.bodies[-1]["max_tokens"] == 20000


async def test_temperature_is_given_up(endpoint):
    endpoint.server.refuse("temperature!=1")
    endpoint.server.default("m", "fine")
    client = endpoint.client()
    await endpoint.ask(client, temperature=0.5)
    await endpoint.ask(client, temperature=0.5)
    assert [body.get("temperature") for body in endpoint.bodies] == [0.5, None, None]


async def test_usage_in_streams_is_given_up(endpoint):
    endpoint.server.refuse("stream_options")
    endpoint.server.default("m", "fine")
    client = endpoint.client()
    for _ in range(2):
        assert (await endpoint.ask(client, on_token=lambda _: None)).text == "fine"
    assert ["stream_options" in body for body in endpoint.bodies] == [True, False, False]


async def test_an_endpoint_that_goes_on_complaining_is_not_asked_for_ever(endpoint):
    everything = "stream_options, temperature, max_tokens, response_format, tools and json_object are unsupported"
    endpoint.server.default("m", Reply.error(400, everything))
    with pytest.raises(ModelError):
        await endpoint.ask(structure=VERDICT, temperature=0.5, max_tokens=99, on_token=lambda _: None)
    raw = [json.dumps(body, sort_keys=True) for body in endpoint.bodies]
    assert len(raw) == len(set(raw)) == 8
