"""One event per request."""

import io
import json

import pytest
import structlog
from exchanges import ended, exchange

from reflexion.models.errors import ModelError
from reflexion.models.exchange import guarded
from reflexion.models.ledger import Ledger
from reflexion.models.request_log import RequestLog


async def request(log, *guards, outcome="ok", error=None, **more):
    asked = exchange(prompt=100, usd="0.00001", attempt=2, retry=1, **more)
    async with guarded(asked, [log, *guards]):
        ended(asked, reply=20, outcome=outcome, latency_s=0.5, first_token_s=0.125)
        asked.error = error
    return asked


async def test_one_json_object_a_request_says_what_it_was():
    stream = io.StringIO()
    asked = await request(RequestLog("json", stream=stream), Ledger(), role="evaluator")
    (event,) = map(json.loads, stream.getvalue().splitlines())
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "model_request",
        "level": "info",
        "call": asked.call["id"],
        "run": "r",
        "thread": "t",
        "batch": "b",
        "role": "evaluator",
        "attempt": 2,
        "retry": 1,
        "model": "m",
        "returned_model": "m-1",
        "endpoint": "http://127.0.0.1/v1",
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "estimated": False,
        "cost_usd": "0.0012",
        "latency_ms": 500.0,
        "first_token_ms": 125.0,
        "outcome": "ok",
    }


async def test_a_failure_is_a_warning_with_its_reason_and_without_keys():
    stream = io.StringIO()
    error = ModelError("auth", "refused: sk-abcdefghijklmnop is no key")
    await request(RequestLog("json", stream=stream), outcome="auth", error=error)
    event = json.loads(stream.getvalue())
    assert (event["level"], event["outcome"], event["error"]) == ("warning", "auth", "refused: [key] is no key")


async def test_the_console_format_is_for_people():
    stream = io.StringIO()
    await request(RequestLog("console", stream=stream))
    assert "model_request" in stream.getvalue()
    assert "role=actor" in stream.getvalue()


async def test_nothing_is_said_by_default(capfd):
    await request(RequestLog())
    assert capfd.readouterr() == ("", "")


async def test_structlogs_own_configuration_is_left_alone():
    # LangGraph's server, which other tests import, configures it for the whole process.
    before = structlog.is_configured(), structlog.get_config()
    stream = io.StringIO()
    await request(RequestLog("json", stream=stream))
    assert (structlog.is_configured(), structlog.get_config()) == before


async def test_the_callers_logger_may_be_used():
    with structlog.testing.capture_logs() as events:
        await request(RequestLog(logger=structlog.get_logger()))
    assert [event["event"] for event in events] == ["model_request"]


async def test_a_closed_stream_costs_no_reply():
    stream = io.StringIO()
    log = RequestLog("json", stream=stream)
    stream.close()
    assert (await request(log)).call["outcome"] == "ok"


async def test_a_request_that_was_never_sent_is_no_event():
    stream = io.StringIO()

    class Refuses:
        def around(self, exchange):
            raise ModelError("overloaded", "the circuit is open")

    with pytest.raises(ModelError):
        async with guarded(exchange(), [RequestLog("json", stream=stream), Refuses()]):
            pass
    assert stream.getvalue() == ""


async def test_an_answer_from_the_cache_is_logged_as_such():
    stream = io.StringIO()
    asked = exchange()
    RequestLog("json", stream=stream).write(asked, ended(asked, outcome="cached", cost_usd="0"))
    event = json.loads(stream.getvalue())
    assert (event["level"], event["outcome"], event["cost_usd"]) == ("info", "cached", "0")
