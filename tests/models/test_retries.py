"""One layer of retries: what can pass is repeated, what cannot is asked once."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from endpoint import PROMPT
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from reflexion.models import DeadlineExceeded, ModelError, Models, Usage
from reflexion.testing import Reply

STREAMED = [pytest.param(None, id="whole"), pytest.param(lambda _: None, id="stream")]


async def failure(endpoint, meter=None, **settings):
    on_token = settings.pop("on_token", None)
    with pytest.raises(ModelError) as raised:
        await endpoint.ask(endpoint.client(**settings), meter, on_token=on_token)
    return raised.value


@pytest.mark.parametrize("on_token", STREAMED)
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=503), "overloaded"),
        (Reply(status=500), "overloaded"),
        (Reply(status=529), "overloaded"),
        (Reply(body="<html>bad gateway</html>", status=502), "overloaded"),
        (Reply(status=409), "overloaded"),
        (Reply(status=408), "timeout"),
        (Reply(status=504), "timeout"),
        (Reply(status=429), "rate_limit"),
        (Reply(drop=True), "connection"),
        (Reply("a long enough answer", cut_after=1), "connection"),
        (Reply(body="<html>maintenance</html>"), "invalid_reply"),
        (Reply(body={"choices": None}), "invalid_reply"),
        (Reply(body={"choices": []}), "invalid_reply"),
        (Reply(body={"hello": 1}), "invalid_reply"),
        (Reply(body=b"", headers={"content-type": "application/json"}), "invalid_reply"),
        (Reply(body="{", headers={"content-type": "application/json"}), "invalid_reply"),
    ],
)
async def test_a_passing_fault_is_tried_once_and_then_as_often_as_allowed(endpoint, reply, kind, on_token):
    endpoint.server.default("m", reply)
    meter = endpoint.meter()
    error = await failure(endpoint, meter, max_retries=2, on_token=on_token)
    assert error.kind == kind
    assert endpoint.server.count == 3 == len(meter.calls)
    assert len(endpoint.waits) == 2
    assert {call["outcome"] for call in meter.calls} == {error.kind}


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_requests_are_one_and_the_retries(endpoint, retries):
    endpoint.server.default("m", Reply(status=503))
    await failure(endpoint, max_retries=retries)
    assert endpoint.server.count == 1 + retries


@pytest.mark.parametrize("on_token", STREAMED)
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=400), "bad_request"),
        (Reply(status=401), "auth"),
        (Reply(status=403), "auth"),
        (Reply(status=404), "not_found"),
        (Reply.error(402, "balance empty"), "billing"),
        (Reply.error(429, "no", code="insufficient_quota", type="insufficient_quota"), "billing"),
        (Reply.error(429, "You exceeded your current quota, please check your plan and billing details"), "billing"),
        (Reply.error(400, "Insufficient account balance", code="invalid_request_error"), "billing"),
        (Reply.error(400, "Your credit balance is too low to access the API"), "billing"),
        (Reply.error(403, "You have no credits left"), "billing"),
        (Reply.error(400, "filtered", code="content_filter"), "content_filter"),
        (Reply.error(400, "too long", code="context_length_exceeded"), "context_length"),
        (Reply.error(400, "the request exceeds the available context size", type="exceed_context_size_error"), None),
        (Reply.error(413, "payload too large"), "context_length"),
    ],
)
async def test_a_hopeless_error_is_one_request(endpoint, reply, kind, on_token):
    endpoint.server.default("m", reply)
    meter = endpoint.meter()
    error = await failure(endpoint, meter, on_token=on_token)
    assert error.kind == (kind or "context_length")
    assert endpoint.server.count == 1 == len(meter.calls)
    assert endpoint.waits == []


SAID_WITH_200 = [
    ({"message": "upstream is down"}, "overloaded", 3),
    ({"message": "slow down", "code": 429}, "rate_limit", 3),
    ({"message": "no", "code": "rate_limit_exceeded"}, "rate_limit", 3),
    ({"message": "no", "code": "insufficient_quota"}, "billing", 1),
    ({"message": "no", "code": "context_length_exceeded"}, "context_length", 1),
    ({"message": "no", "code": 401}, "auth", 1),
]


@pytest.mark.parametrize(("said", "kind", "requests"), SAID_WITH_200)
async def test_an_error_that_comes_with_status_200_is_understood_by_its_code(endpoint, said, kind, requests):
    endpoint.server.default("m", Reply(body={"error": said}))
    assert (await failure(endpoint, max_retries=2)).kind == kind
    assert endpoint.server.count == requests


@pytest.mark.parametrize(("said", "kind", "_"), SAID_WITH_200)
async def test_so_is_one_where_a_stream_was_asked_for(endpoint, said, kind, _):
    endpoint.server.default("m", Reply(body={"error": said}))
    assert (await failure(endpoint, max_retries=1, on_token=lambda _: None)).kind == kind
    assert ["stream_options" in body for body in endpoint.bodies] == [True, False]


async def test_a_server_that_cannot_stream_is_asked_for_the_whole(endpoint):
    whole = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}
    endpoint.server.default("m", Reply(body=whole))
    pieces = []
    assert (await endpoint.ask(on_token=pieces.append)).text == "fine"
    assert pieces == ["fine"]


async def test_a_stream_that_reports_an_error_is_understood_by_its_code(endpoint):
    endpoint.server.default("m", Reply(chunks=[{"error": {"message": "x", "code": "insufficient_quota"}}]))
    assert (await failure(endpoint, on_token=lambda _: None)).kind == "billing"
    assert endpoint.server.count == 1


async def test_a_stream_without_its_end_is_no_answer(endpoint):
    piece = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "def f("}, "finish_reason": None}]}
    endpoint.server.script("m", Reply(chunks=[piece]), Reply("whole"))
    assert (await endpoint.ask(on_token=lambda _: None)).text == "whole"
    assert endpoint.server.count == 2


async def test_a_missing_done_is_forgiven(endpoint):
    endpoint.server.default("m", Reply("whole", done=False))
    assert (await endpoint.ask(on_token=lambda _: None)).text == "whole"


def in_seconds(seconds):
    """Headers with a date so far from now; made when it is needed."""
    return lambda: {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)}


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "2"}, 2, 3),
        ({"Retry-After": "2.5"}, 2.5, 3),
        ({"retry-after-ms": "250"}, 0.25, 1),
        ({"retry-after-ms": "soon", "Retry-After": "2"}, 2, 3),
        ({"Retry-After": "soon"}, 0, 0.5),
        ({"Retry-After": "-1"}, 0, 0.5),
        ({"Retry-After": "nan"}, 0, 0.5),
        ({"Retry-After": ""}, 0, 0.5),
        (in_seconds(-60), 0, 0.5),
        (in_seconds(50), 1, 51),
        ({}, 0, 0.5),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_the_wait_is_what_the_server_asks_for(endpoint, status, headers, least, most):
    given = headers() if callable(headers) else headers
    endpoint.server.script("m", Reply(status=status, headers=given), "fine")
    assert (await endpoint.ask()).text == "fine"
    assert least <= endpoint.waits[0] <= most


@pytest.mark.parametrize(
    ("words", "wait"),
    [("Please try again in 7.5s.", 7.5), ("try again in 250ms", 0.25), ("Please retry after 1m26s", 86)],
)
async def test_a_wait_that_only_the_message_names_is_kept(endpoint, words, wait):
    endpoint.server.script("m", Reply.error(429, words), "fine")
    await endpoint.ask(endpoint.client(max_retry_wait_s=100))
    assert wait <= endpoint.waits[0] <= wait + 0.5


@pytest.mark.parametrize("headers", [{"Retry-After": "3600"}, {"retry-after-ms": "3600000"}])
async def test_a_wait_that_is_too_long_fails_at_once_and_is_named(endpoint, headers):
    endpoint.server.default("m", Reply(status=429, headers=headers))
    error = await failure(endpoint)
    assert "asked to wait 3600 s" in str(error)
    assert endpoint.server.count == 1
    assert endpoint.waits == []


async def test_a_wait_beyond_the_deadline_ends_the_run(endpoint):
    endpoint.server.default("m", Reply(status=429, headers={"Retry-After": "30"}))
    with pytest.raises(DeadlineExceeded):
        await endpoint.ask(meter=endpoint.meter(deadline=10.0, clock=lambda: 0.0))
    assert endpoint.server.count == 1
    assert endpoint.waits == []


async def test_a_timeout_of_the_endpoint_itself_is_not_the_deadline_of_the_run(endpoint):
    endpoint.server.script("m", Reply(status=504), "fine")
    assert (await endpoint.ask(meter=endpoint.meter(deadline=100.0, clock=lambda: 0.0))).text == "fine"


async def test_no_request_after_the_deadline(endpoint):
    with pytest.raises(DeadlineExceeded):
        await endpoint.ask(meter=endpoint.meter(deadline=10.0, clock=lambda: 10.0))
    assert endpoint.server.count == 0


@pytest.mark.parametrize(
    ("reply", "on_token"),
    [
        (Reply(hang=True), None),
        (Reply("a long enough answer", stall_after=2), lambda _: None),
        (Reply("a long enough answer", drip_s=0.05), lambda _: None),
        (Reply("a long enough answer", drip_s=0.05), None),
    ],
)
async def test_a_call_ends_at_its_timeout_however_the_server_is_slow(endpoint, reply, on_token):
    endpoint.server.default("m", reply)
    client, meter = endpoint.client(call_timeout_s=0.5, max_retries=1), endpoint.meter()
    with pytest.raises(ModelError) as raised:
        await endpoint.ask(client, meter, on_token=on_token)
    assert raised.value.kind == "timeout"
    assert [call["outcome"] for call in meter.calls] == ["timeout"] * 2


async def test_a_call_ends_at_the_deadline_of_the_run(endpoint):
    endpoint.server.default("m", Reply(hang=True))
    meter = endpoint.meter(deadline=0.3, clock=lambda: 0.0)
    with pytest.raises(DeadlineExceeded):
        await endpoint.ask(meter=meter)
    assert [call["outcome"] for call in meter.calls] == ["deadline"]


async def test_a_cancelled_call_is_in_the_ledger(endpoint):
    endpoint.server.default("m", Reply(hang=True))
    meter = endpoint.meter()
    task = asyncio.create_task(endpoint.ask(meter=meter))
    await endpoint.server.wait_for_async("m")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(call["outcome"], call["estimated"]) for call in meter.calls] == [("cancelled", True)]
    assert meter.calls[0]["prompt_tokens"] > 0


async def test_a_broken_stream_is_booked_with_what_had_come(endpoint):
    endpoint.server.script("m", Reply("x" * 400, cut_after=60), "fine")
    meter = endpoint.meter()
    await endpoint.ask(meter=meter, on_token=lambda _: None)
    assert meter.calls[0]["completion_tokens"] >= 60
    assert meter.calls[0]["estimated"]


async def test_an_error_status_costs_nothing(endpoint):
    endpoint.server.default("m", Reply(status=400))
    meter = endpoint.meter()
    await failure(endpoint, meter)
    assert Usage.of(meter.calls).tokens == 0


async def test_the_retries_of_an_own_models_sdk_do_not_multiply_ours(endpoint):
    endpoint.server.default("m", Reply(status=503))
    own = ChatOpenAI(model="m", base_url=endpoint.server.base_url, api_key="any", max_retries=2)
    models = Models(endpoint.models(max_retries=1).connection, own=own, sleep=lambda _: asyncio.sleep(0))
    try:
        with pytest.raises(ModelError):
            await endpoint.ask(models.client("actor"))
    finally:
        await models.aclose()
    assert endpoint.server.count == 2
    assert own.root_async_client.max_retries == 2


async def test_whatever_an_own_model_raises_is_a_model_error_and_no_retry(endpoint):
    def broken():
        raise RuntimeError("weights are gone")
        yield

    client = Models(endpoint.models().connection, own=GenericFakeChatModel(messages=broken())).client("actor")
    meter = endpoint.meter()
    with pytest.raises(ModelError, match="weights are gone") as raised:
        await client.complete(PROMPT, meter)
    assert raised.value.kind == "failed" == meter.calls[0]["outcome"]
    assert len(meter.calls) == 1


async def test_another_providers_overload_is_retried(endpoint):
    class OverloadedError(Exception):
        status_code = 529

    def recovers():
        yield AIMessage("fine")

    model = GenericFakeChatModel(messages=recovers())
    failures = [OverloadedError("busy")]

    class Own(GenericFakeChatModel):
        def _generate(self, *args, **kwargs):
            if failures:
                raise failures.pop()
            return model._generate(*args, **kwargs)

    models = Models(endpoint.models().connection, own=Own(messages=iter([])), sleep=lambda _: asyncio.sleep(0))
    meter = endpoint.meter()
    assert (await endpoint.ask(models.client("actor"), meter)).text == "fine"
    assert [call["outcome"] for call in meter.calls] == ["overloaded", "ok"]


async def test_an_own_model_of_any_kind_answers_whole_and_in_a_stream(endpoint):
    client = Models(endpoint.models().connection, own=FakeListChatModel(responses=["fine"])).client("actor")
    pieces = []
    assert (await endpoint.ask(client)).text == "fine"
    assert (await endpoint.ask(client, on_token=pieces.append)).text == "fine"
    assert "".join(pieces) == "fine"
    assert endpoint.server.count == 0
