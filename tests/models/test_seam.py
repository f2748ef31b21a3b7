"""All guards together around real requests, counted where they arrive."""

import asyncio

import pytest
from endpoint import PROMPT, VERDICT
from guards import STREAMED, Clock, all_but, kinds, together
from loop_time import leap

from reflexion.models import (
    Breaker,
    ChatClient,
    ConnectionSettings,
    Fallback,
    Limits,
    ModelConfigurationError,
    ModelError,
    RateLimit,
    RetryPolicy,
    Usage,
    ask_structured,
    object_of,
)
from reflexion.models.answer import Answer
from reflexion.models.breaker import LocalCircuits
from reflexion.models.seam import Seam
from reflexion.testing import Reply


@pytest.mark.parametrize("on_token", STREAMED)
async def test_no_more_requests_are_in_flight_than_the_settings_allow(endpoint, on_token):
    endpoint.server.default("m", Reply("fine", delay_s=0.02))
    endpoint.server.hold("m")
    client = endpoint.client(concurrency=3)
    calls = asyncio.create_task(together(12, lambda: endpoint.ask(client, on_token=on_token)))
    await endpoint.server.wait_for_async("m", 3)
    endpoint.server.release("m")
    assert kinds(await calls) == ["Reply"] * 12
    assert endpoint.server.peak_concurrency == 3


async def test_a_slot_is_for_one_model_and_is_free_while_a_retry_waits(endpoint):
    endpoint.server.script("m", Reply(status=503))
    endpoint.server.default("m", "fine")
    models = endpoint.models(concurrency=1)
    during_the_wait = []

    async def sleep(seconds):
        during_the_wait.append(await endpoint.ask(client))

    client = models.client("actor", "m")
    patient = ChatClient(
        client._connect,
        name="m",
        base_url=client.base_url,
        retry=RetryPolicy(sleep=sleep),
        seam=models.seam,
    )
    assert (await endpoint.ask(patient)).text == "fine"
    assert [reply.text for reply in during_the_wait] == ["fine"]
    assert endpoint.server.peak_concurrency == 1


def test_the_settings_become_limits():
    limits = {"requests_per_minute": 1.0, "tokens_per_minute": 2.0, "concurrency": 3}
    settings = ConnectionSettings(**limits, max_queue_wait_s=4, _env_file=None)
    assert Seam.of(settings).limits._limits == Limits(**limits, max_wait_s=4)


async def test_requests_per_minute_hold_at_the_server(endpoint, guarded_client):
    clock, arrived = Clock(), []

    async def sleep(seconds):
        while limits.state()[0].in_flight:  # noqa: ASYNC110 - what was let through is to arrive before time passes
            await asyncio.sleep(0)
        clock.now += seconds

    def answer(_):
        arrived.append(clock.now)
        return "fine"

    endpoint.server.default("m", answer)
    limits = RateLimit(Limits(requests_per_minute=600), clock=clock, sleep=sleep)  # 10 a second, with a burst of 10
    client = guarded_client(Seam(limits=limits))
    assert kinds(await together(14, lambda: endpoint.ask(client))) == ["Reply"] * 14
    assert arrived == pytest.approx([0.0] * 10 + [0.1, 0.2, 0.3, 0.4])


async def test_a_queue_that_is_too_long_fails_unsent_and_is_told_apart(endpoint, guarded_client):
    clock = Clock()
    limits = RateLimit(Limits(requests_per_minute=1, max_wait_s=5), clock=clock, sleep=clock.sleep)
    client, meter = guarded_client(Seam(limits=limits)), endpoint.meter()
    endpoint.server.default("m", "fine")
    results = await together(3, lambda: endpoint.ask(client, meter))
    assert sorted(kinds(results)) == ["Reply", "rate_limit", "rate_limit"]
    assert endpoint.server.count == 1 == len(meter.calls) == len(meter.ledger.lines)


def six_thousand_tokens_a_minute(clock):
    """A burst is 10 seconds' worth: 1000 tokens."""
    return Seam(limits=RateLimit(Limits(tokens_per_minute=6000, max_wait_s=1), clock=clock, sleep=clock.sleep))


async def test_tokens_per_minute_count_what_replies_really_used(endpoint, guarded_client):
    clock = Clock()
    client = guarded_client(six_thousand_tokens_a_minute(clock))
    usage = {"prompt_tokens": 30, "completion_tokens": 30, "total_tokens": 60}
    endpoint.server.default("m", Reply("x", usage=usage))
    for _ in range(8):  # each reserves about 400 and uses 60
        await endpoint.ask(client, max_tokens=380)
    assert (endpoint.server.count, clock.now) == (8, 0)


async def test_tokens_per_minute_hold_back_what_was_reserved(endpoint, guarded_client):
    client = guarded_client(six_thousand_tokens_a_minute(Clock()))
    endpoint.server.default("m", "x")
    endpoint.server.hold("m")
    pending = {asyncio.create_task(endpoint.ask(client, max_tokens=380)) for _ in range(4)}
    refused = await all_but(2, pending)
    assert kinds(refused) == ["rate_limit"] * 2
    endpoint.server.release("m")
    assert kinds(await asyncio.gather(*pending)) == ["Reply"] * 2
    assert endpoint.server.count == 2


async def test_after_five_faults_nothing_is_sent_until_a_probe_succeeds(endpoint, guarded_client):
    clock, changes = Clock(), []
    breaker = Breaker(LocalCircuits(clock=clock), on_change=lambda before, after: changes.append((before, after.state)))
    client = guarded_client(Seam(breaker=breaker))
    endpoint.server.script("m", *[Reply(status=503)] * 5)
    endpoint.server.default("m", "fine")
    meter = endpoint.meter()
    for _ in range(5):
        with pytest.raises(ModelError, match="503"):
            await endpoint.ask(client, meter)
    results = await together(4, lambda: endpoint.ask(client, meter))
    assert kinds(results) == ["circuit_open"] * 4
    assert "5 of 5 requests failed" in str(results[0])
    assert endpoint.server.count == 5 == Usage.of(meter.calls).requests
    assert [line["outcome"] for line in meter.ledger.lines] == ["overloaded"] * 5 + ["circuit_open"] * 4
    clock.now = 16.0
    endpoint.server.hold("m")
    probes = {asyncio.create_task(endpoint.ask(client, meter)) for _ in range(3)}
    assert kinds(await all_but(1, probes)) == ["circuit_open"] * 2
    endpoint.server.release("m")
    assert kinds(await asyncio.gather(*probes)) == ["Reply"]
    assert endpoint.server.count == 6
    assert changes == [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]
    assert [call["outcome"] for call in meter.calls[9:]] == ["circuit_open"] * 2 + ["ok"]
    assert Usage.of(meter.calls).requests == 6


async def test_the_settings_alone_bring_a_breaker(endpoint):
    endpoint.server.default("m", Reply(drop=True))
    client = endpoint.client(max_retries=2)
    results = [*await together(1, lambda: endpoint.ask(client)), *await together(1, lambda: endpoint.ask(client))]
    # The second call's third try would be the sixth request.
    assert kinds(results) == ["connection", "circuit_open"]
    assert endpoint.server.count == 5


@pytest.mark.parametrize(
    "reply", [Reply(status=429), Reply(status=401), Reply(status=400), Reply(refusal="no"), Reply.error(402, "empty")]
)
async def test_what_is_no_fault_of_the_endpoint_opens_nothing(endpoint, reply):
    endpoint.server.default("m", reply)
    client = endpoint.client(max_retries=0)
    await together(8, lambda: endpoint.ask(client))
    assert endpoint.server.count == 8


@pytest.mark.parametrize("on_token", STREAMED)
async def test_a_refused_parameter_neither_counts_nor_holds_a_slot(endpoint, guarded_client, on_token):
    refused = ["response_format", "tools", "temperature", "max_completion_tokens", "stream_options"]
    for which in refused:
        endpoint.server.refuse(which)
    endpoint.server.default("m", '{"score": 8}')
    breaker = Breaker()
    seam = Seam(breaker=breaker, limits=RateLimit(Limits(concurrency=1)))
    client, meter = guarded_client(seam), endpoint.meter(budget_tokens=10_000)
    options = {"temperature": 0.5, "max_tokens": 500, "on_token": on_token, "structure": VERDICT}
    assert (await endpoint.ask(client, meter, **options)).text == '{"score": 8}'
    discovered = endpoint.server.count
    # `response_format` is refused on two rungs of the ladder; usage is asked for in streams only.
    assert discovered == 1 + len(refused) + (1 if on_token else 0)
    await endpoint.ask(client, meter, **options)
    assert endpoint.server.count == discovered + 1
    [circuit] = await breaker.state()
    assert (circuit.state, circuit.faults) == ("closed", 0)
    [limit] = seam.limits.state()
    assert limit.in_flight == limit.queued == 0
    assert meter.budget.reserved.tokens == 0
    assert meter.budget.used.tokens == Usage.of(meter.calls).tokens
    assert [line["outcome"] for line in meter.ledger.lines].count("bad_request") == discovered - 1


async def test_a_refused_parameter_does_not_close_a_circuit_that_is_probed(endpoint, guarded_client):
    clock = Clock()
    breaker = Breaker(LocalCircuits(clock=clock))
    client = guarded_client(Seam(breaker=breaker))
    endpoint.server.script("m", *[Reply(status=503)] * 5, Reply.error(400, "temperature?", param="temperature"))
    endpoint.server.default("m", Reply(status=503))
    await together(5, lambda: endpoint.ask(client))
    clock.now = 16.0
    with pytest.raises(ModelError, match="503"):
        await endpoint.ask(client, temperature=0.5)
    assert endpoint.server.count == 7
    [circuit] = await breaker.state()
    assert (circuit.state, circuit.openings) == ("open", 2)


@pytest.mark.parametrize(
    ("reply", "requests"),
    [
        (Reply(status=503), 2),
        (Reply(status=429), 2),
        (Reply(drop=True), 2),
        (Reply("too long?", status=400), 1),
        (Reply.error(400, "too long", code="context_length_exceeded"), 1),
        (Reply(status=429, headers={"Retry-After": "3600"}), 1),
    ],
)
@pytest.mark.parametrize("on_token", STREAMED)
async def test_the_next_model_is_asked_where_one_cannot_answer(endpoint, reply, requests, on_token):
    endpoint.server.default("first", reply)
    endpoint.server.default("second", "fine")
    models, meter, switches = endpoint.models(max_retries=1), endpoint.meter(), []
    clients = [models.client("actor", name) for name in ("first", "second", "third")]
    chain = Fallback(clients, lambda one, other, error: switches.append((one.name, other.name, error.kind)))
    assert (await endpoint.ask(chain, meter, on_token=on_token)).text == "fine"
    assert len(endpoint.server.requests_for("first")) == requests
    assert [request.model for request in endpoint.server.requests] == ["first"] * requests + ["second"]
    assert [line["model"] for line in meter.ledger.lines] == ["first"] * requests + ["second"]
    assert [switch[:2] for switch in switches] == [("first", "second")]


async def test_an_open_circuit_falls_back_without_a_request(endpoint):
    endpoint.server.default("first", Reply(status=503))
    endpoint.server.default("second", "fine")
    models, kind = endpoint.models(max_retries=0), []
    chain = Fallback(
        [models.client("actor", name) for name in ("first", "second")], lambda *switch: kind.append(switch[2].kind)
    )
    for _ in range(7):
        assert (await endpoint.ask(chain)).text == "fine"
    assert kind == ["overloaded"] * 5 + ["circuit_open"] * 2
    assert len(endpoint.server.requests_for("first")) == 5


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(refusal="no"), "refused"),
        (Reply(status=401), "auth"),
        (Reply.error(402, "balance empty"), "billing"),
        (Reply.error(400, "filtered", code="content_filter"), "content_filter"),
        (Reply(status=404), "not_found"),
    ],
)
async def test_nobody_else_is_asked_behind_the_users_back(endpoint, reply, kind):
    endpoint.server.default("first", reply)
    models = endpoint.models()
    with pytest.raises(ModelError) as raised:
        await endpoint.ask(Fallback([models.client("actor", name) for name in ("first", "second")]))
    assert raised.value.kind == kind
    assert endpoint.server.count == 1


async def test_the_last_models_error_is_the_answer(endpoint):
    endpoint.server.default("first", Reply(status=503))
    endpoint.server.default("second", Reply(status=401))
    models = endpoint.models(max_retries=0)
    with pytest.raises(ModelError) as raised:
        await endpoint.ask(Fallback([models.client("actor", name) for name in ("first", "second")]))
    assert raised.value.kind == "auth"


@pytest.mark.parametrize("begins", [Reply("slow", drip_s=0.001), Reply("", reasoning_content="hm", drip_s=0.001)])
async def test_a_stream_that_has_begun_may_go_on(endpoint, monkeypatch, begins):
    endpoint.server.default("m", begins)
    begun = []
    add = Answer.add

    def add_and_take_long(answer, *part):
        add(answer, *part)
        if answer.first_token_s is not None and not begun:
            begun.append(answer)
            leap(31)

    monkeypatch.setattr(Answer, "add", add_and_take_long)
    client = endpoint.client(first_token_timeout_s=30, max_retries=0)
    assert (await endpoint.ask(client, on_token=lambda _: None)).text == begins.content
    assert begun


@pytest.mark.parametrize("silence", [Reply("x", delay_s=50), Reply("x", stall_after=1), Reply(hang=True)])
async def test_a_stream_that_does_not_begin_is_given_up_and_tried_again(endpoint, silence):
    endpoint.server.script("m", silence, "fine")
    client, meter = endpoint.client(first_token_timeout_s=30), endpoint.meter()
    asking = asyncio.create_task(endpoint.ask(client, meter, on_token=lambda _: None))
    await endpoint.server.wait_for_async("m")
    leap(31)
    assert (await asking).text == "fine"
    assert [call["outcome"] for call in meter.calls] == ["timeout", "ok"]


async def test_a_profile_without_its_key_names_the_variable(endpoint, monkeypatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    with pytest.raises(ModelConfigurationError, match="DEEPSEEK_API_KEY"):
        endpoint.client("profile:deepseek-v3.2")
    with pytest.raises(ModelConfigurationError, match="choose gpt"):
        endpoint.client("profile:deepseek")


async def test_a_profile_brings_its_address_and_price(endpoint, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "any")
    client = endpoint.client("profile:deepseek-v3.2")
    assert (client.name, client.base_url) == ("deepseek-chat", "https://api.deepseek.com/v1")
    assert client.has_price()
    model = await client._connected()
    assert str(model.root_async_client.base_url) == "https://api.deepseek.com/v1/"


async def test_structured_asking_goes_through_a_fallback_too(endpoint):
    endpoint.server.default("first", Reply(status=503))
    endpoint.server.default("second", '{"score": 8}')
    models = endpoint.models(max_retries=0)
    chain = Fallback([models.client("actor", name) for name in ("first", "second")])
    read = await ask_structured(chain, PROMPT, endpoint.meter(), VERDICT, object_of)
    assert read.value == {"score": 8}
