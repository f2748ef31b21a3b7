"""Where models are found, in every loop of a process, and that no key is ever shown."""

import asyncio
import logging
import traceback

import pytest
from endpoint import PROMPT, VERDICT, Endpoint
from langchain_core.tracers.context import collect_runs
from langchain_openai import ChatOpenAI
from leaks import assert_leaks_nothing
from pydantic import SecretStr, ValidationError

from reflexion.models import (
    ConnectionSettings,
    ModelConfigurationError,
    ModelError,
    Models,
    ask_structured,
    object_of,
    scrub,
)
from reflexion.models.settings import normalise_base_url
from reflexion.testing import FakeOpenAI, Reply

KEY = "0123-not-of-any-known-form-4567"


@pytest.mark.parametrize(
    "form", ["{}", "{}/", "{}//", " {} ", "{}/chat/completions", "{}/chat/completions/", "{}/CHAT/completions"]
)
async def test_every_form_of_an_address_reaches_the_endpoint(endpoint, form):
    endpoint.server.default("m", "fine")
    given = form.format(endpoint.server.base_url)
    assert (await endpoint.ask(endpoint.client(base_url=given))).text == "fine"
    assert [request.path for request in endpoint.server.requests] == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:8000", "try http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "try http://127.0.0.1:8000/v1"),
        ("127.0.0.1:8000/v1", "not an http"),
        ("ftp://127.0.0.1/v1", "not an http"),
        ("http://", "not an http"),
        ("http://[::1/v1", "not an http"),
        ("http://127.0.0.1:port/v1", "not an http"),
        (f"http://user:{KEY}@127.0.0.1/v1", "REFLEXION_API_KEY"),
        (f"http://{KEY}@127.0.0.1/v1", "REFLEXION_API_KEY"),
        (f"http://127.0.0.1/v1?key={KEY}", "REFLEXION_API_KEY"),
        (f"{KEY}@/v1", "REFLEXION_API_KEY"),
    ],
)
def test_an_address_that_cannot_work_is_refused_and_says_why(url, says):
    with pytest.raises(ValueError, match=says):
        normalise_base_url(url)
    with pytest.raises(ValidationError) as raised:
        ConnectionSettings(base_url=url, _env_file=None)
    assert KEY not in str(raised.value)


async def test_a_wrong_path_names_the_address_and_is_one_request(endpoint):
    wrong = endpoint.server.base_url + "/nothing"
    with pytest.raises(ModelError, match=wrong) as raised:
        await endpoint.ask(endpoint.client(base_url=wrong))
    assert raised.value.kind == "not_found"
    assert endpoint.server.count == 1


async def test_other_libraries_variables_send_no_prompt_elsewhere(endpoint, monkeypatch):
    endpoint.server.default("m", "fine")
    async with FakeOpenAI() as elsewhere:
        for variable in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
            monkeypatch.setenv(variable, elsewhere.base_url)
        await endpoint.ask()
        assert (endpoint.server.count, elsewhere.count) == (1, 0)


@pytest.mark.parametrize("name", ["gpt-5.2-pro", "codex-mini", "o3-pro", "qwen2.5-coder-0.5b"])
async def test_no_name_changes_the_path_that_is_asked(endpoint, name):
    endpoint.server.default(name, "fine")
    assert (await endpoint.ask(endpoint.client(name))).text == "fine"


@pytest.mark.parametrize(
    ("variables", "key"),
    [
        ({"REFLEXION_API_KEY": "a", "OPENAI_API_KEY": "b"}, "a"),
        ({"OPENAI_API_KEY": "b"}, "b"),
        ({"REFLEXION_API_KEY": "", "OPENAI_API_KEY": "b"}, "b"),
        ({"REFLEXION_API_KEY": " a\n"}, "a"),
        ({}, ""),
    ],
)
async def test_the_key_is_ours_before_openais_and_an_empty_one_is_none(endpoint, monkeypatch, variables, key):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ConnectionSettings(_env_file=None).api_key.get_secret_value() == key


async def test_an_endpoint_without_a_key_is_asked_without_one(endpoint):
    endpoint.server.default("m", "fine")
    await endpoint.ask(endpoint.client(api_key=""))
    assert endpoint.server.requests[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize(
    ("settings", "name", "says"),
    [
        ({"base_url": "http://127.0.0.1:1/v1"}, None, "REFLEXION_MODEL"),
        ({"base_url": "", "api_key": ""}, "gpt-4o-mini", "REFLEXION_BASE_URL"),
    ],
)
async def test_what_is_missing_is_named(endpoint, settings, name, says):
    with pytest.raises(ModelConfigurationError, match=says):
        endpoint.models(**settings).client("actor", name)


async def test_one_client_per_model(endpoint):
    models = endpoint.models()
    assert models.client("actor", "m") is models.client("planner", "m")
    assert models.client("actor", "m") is not models.client("actor", "n")


@pytest.mark.parametrize("own", [False, True])
def test_the_same_models_serve_one_loop_after_another_and_leave_nothing_open(own):
    assert_leaks_nothing(f"""
        import asyncio

        from langchain_core.messages import HumanMessage
        from langchain_openai import ChatOpenAI

        from reflexion.models import ConnectionSettings, Meter, Models
        from reflexion.testing import FakeOpenAI

        with FakeOpenAI() as server:
            server.default("m", "fine")
            brought = ChatOpenAI(model="m", base_url=server.base_url, api_key="any") if {own} else None
            models = Models(ConnectionSettings(base_url=server.base_url, api_key="any", _env_file=None), own=brought)

            async def run():
                try:
                    client = models.client("actor", "m")
                    prompt = [HumanMessage("hi")]
                    calls = (client.complete(prompt, Meter(role="actor", attempt=1)) for _ in range(3))
                    return [reply.text for reply in await asyncio.gather(*calls)]
                finally:
                    await models.aclose()

            assert [asyncio.run(run()) for _ in range(2)] == [["fine"] * 3] * 2
            assert server.count == 6
    """)


async def test_calls_at_the_same_time_connect_once(endpoint):
    endpoint.server.default("m", "fine")
    client = endpoint.client()
    connected = []
    connect = client._connect

    async def counting():
        connected.append(1)
        return await connect()

    client._connect = counting
    await asyncio.gather(*(endpoint.ask(client) for _ in range(5)))
    assert connected == [1]


async def test_closing_goes_on_where_one_thing_cannot_be_closed(endpoint):
    models = endpoint.models()
    closed = []

    async def fails():
        raise RuntimeError("stuck")

    async def closes():
        closed.append(1)

    stack = models._opened().stack
    stack.push_async_callback(closes)
    stack.push_async_callback(fails)
    with pytest.raises(RuntimeError, match="stuck"):
        await models.aclose()
    assert closed == [1]


ECHOES = [
    Reply.error(401, f"Incorrect API key provided: {KEY}"),
    Reply.error(400, f"bad header Bearer {KEY}"),
    Reply(body=f"<html>{KEY}</html>", status=502),
    Reply(body={"error": {"message": KEY}}),
    Reply(body=KEY),
    Reply(None, refusal=f"I will not use {KEY}"),
]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("on_token", [None, lambda _: None])
@pytest.mark.parametrize("reply", ECHOES)
async def test_the_key_is_in_no_error_log_traceback_or_repr(endpoint: Endpoint, caplog, reply, on_token, own):
    caplog.set_level(logging.DEBUG)
    endpoint.server.default("m", reply)
    connection = endpoint.models(api_key=KEY, max_retries=0).connection
    brought = ChatOpenAI(model="m", base_url=endpoint.server.base_url, api_key=SecretStr(KEY)) if own else None
    models = Models(connection, own=brought)
    client, meter = models.client("actor", "m"), endpoint.meter()
    with collect_runs() as traced, pytest.raises(ModelError) as raised:
        await endpoint.ask(client, meter, on_token=on_token)
    await models.aclose()
    assert traced.traced_runs
    traces = [f"{run.error} {run.inputs} {run.extra} {run.serialized}" for run in traced.traced_runs]
    assert not [text for text in traces if KEY in text]
    shown = [str(raised.value), repr(raised.value), str(meter.calls), repr(client), repr(models), repr(connection)]
    shown.append("".join(traceback.format_exception(raised.value)))
    shown += [record.getMessage() for record in caplog.records if record.name.startswith("reflexion")]
    assert not [text for text in shown if KEY in text]


@pytest.mark.parametrize("key", ["sk-test-123456", "sk-proj-abc_DEF-123", "gsk_abcdef123", "lsv2_pt_abcdef"])
def test_what_looks_like_a_key_is_blotted_out(key):
    assert key not in scrub(f"Incorrect API key provided: {key}. Bearer {key}")


def test_a_short_key_is_a_word_and_stays():
    assert scrub("there is none", "none") == "there is none"


async def test_a_listener_for_tokens_does_not_turn_a_whole_reply_into_a_stream(endpoint):
    from langgraph.graph import START, MessagesState, StateGraph

    endpoint.server.default("m", {"score": 8})
    client = endpoint.client()

    async def node(state):
        read = await ask_structured(client, PROMPT, endpoint.meter(), VERDICT, object_of)
        assert read.value == {"score": 8}
        return {}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    async for _ in graph.astream({"messages": []}, stream_mode="messages"):
        pass
    assert [body["stream"] for body in endpoint.bodies] == [False]
