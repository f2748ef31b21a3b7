"""What the circuit breaker promises, in one process and in Redis; the clock is a number here."""

import asyncio
import contextlib
import itertools
import logging
from typing import get_args

import pytest

from reflexion.models.breaker import FAULTS, Breaker, LocalCircuits
from reflexion.models.circuit import BreakerPolicy
from reflexion.models.errors import ErrorKind, ModelError
from reflexion.models.exchange import Exchange
from reflexion.models.usage import Call

POLICY = BreakerPolicy(consecutive=3, share=0.5, least=8, window_s=10, first_open_s=4, longest_open_s=10)


class Time:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
async def redis_circuits(redis_url, prefix, time):
    from reflexion.models.redis_breaker import RedisCircuits

    circuits = RedisCircuits(redis_url, POLICY, prefix=prefix, lease_s=1e6, patience_s=60, clock=time)
    yield circuits
    await circuits.aclose()


@pytest.fixture
def local_circuits(time):
    return LocalCircuits(POLICY, clock=time)


@pytest.fixture(params=["local", "redis"])
def circuits(request):
    return request.getfixturevalue(f"{request.param}_circuits")


@pytest.fixture
def breaker(circuits):
    return Breaker(circuits)


def exchange(endpoint="http://127.0.0.1:1/v1", model="m"):
    return Exchange(endpoint=endpoint, model=model)


def end(exchange, outcome):
    """Fill in how a request ended."""
    exchange.call = Call(
        id="",
        role="",
        attempt=1,
        model=exchange.model,
        returned_model="",
        prompt_tokens=0,
        completion_tokens=0,
        cached_tokens=0,
        reasoning_tokens=0,
        cost_usd=None,
        estimated=False,
        latency_s=0,
        first_token_s=None,
        outcome=outcome,
    )
    if outcome in get_args(ErrorKind):
        exchange.error = ModelError(outcome, f"it was {outcome}")


async def ask(breaker, outcome="ok", **of):
    """One request that ends so; an error is raised as the client would raise it."""
    request = exchange(**of)
    async with breaker.around(request):
        end(request, outcome)
        if request.error is not None:
            raise request.error


async def fail(breaker, *outcomes, **of):
    for outcome in outcomes:
        with pytest.raises(ModelError) as raised:
            await ask(breaker, outcome, **of)
        assert raised.value.kind == outcome


async def state(breaker):
    return (await breaker.state())[0].state


async def opened(breaker):
    await fail(breaker, *["overloaded"] * 3)
    assert await state(breaker) == "open"


async def test_faults_in_a_row_open_it_and_nothing_is_sent_then(breaker, time):
    await opened(breaker)
    time.now += 1
    with pytest.raises(ModelError) as raised:
        await ask(breaker)
    error = raised.value
    assert error.kind == "circuit_open"
    assert not error.retryable
    assert error.wait_s == 3
    assert str(error) == (
        "m at http://127.0.0.1:1/v1 is not asked: its circuit has been open for 1 s after 3 of 3 requests failed, "
        "and it is tried again in 3 s; the last fault: it was overloaded"
    )


async def test_a_reply_between_faults_starts_the_row_anew(breaker):
    await fail(breaker, "timeout", "timeout")
    await ask(breaker)
    await fail(breaker, "timeout", "timeout")
    assert await state(breaker) == "closed"


async def test_a_share_of_faults_opens_it_once_there_are_enough_requests(breaker):
    for _ in range(3):
        await ask(breaker)
        await fail(breaker, "timeout")
    await ask(breaker)
    assert await state(breaker) == "closed"
    await fail(breaker, "timeout")
    assert await state(breaker) == "open"


async def test_a_reply_opens_nothing_even_if_it_makes_the_requests_enough(breaker):
    for _ in range(2):
        await fail(breaker, "timeout", "timeout")
        await ask(breaker)
        await ask(breaker)
    assert await state(breaker) == "closed"
    await fail(breaker, "timeout")
    assert await state(breaker) == "open"


async def test_faults_that_left_the_window_do_not_count_for_the_share(breaker, time):
    for _ in range(3):
        await ask(breaker)
        await fail(breaker, "timeout")
    time.now += 10
    await ask(breaker)
    await fail(breaker, "timeout")
    assert await state(breaker) == "closed"


@pytest.mark.parametrize("kind", sorted(set(get_args(ErrorKind)) - FAULTS))
async def test_what_is_no_fault_of_the_endpoint_never_opens_it(breaker, kind):
    await fail(breaker, *[kind] * 50)
    assert await state(breaker) == "closed"


@pytest.mark.parametrize("kind", sorted(FAULTS))
async def test_each_fault_of_the_endpoint_counts(breaker, kind):
    await fail(breaker, kind, kind, kind)
    assert await state(breaker) == "open"


@pytest.mark.parametrize("kind", ["cancelled", "deadline"])
async def test_a_request_that_we_gave_up_says_nothing(breaker, kind):
    await fail(breaker, "timeout", "timeout")
    for _ in range(50):
        await ask(breaker, kind)
    assert await state(breaker) == "closed"
    await fail(breaker, "timeout")
    assert await state(breaker) == "open"


async def test_one_model_of_an_endpoint_does_not_answer_for_another(breaker):
    await opened(breaker)
    await ask(breaker, model="other")
    await ask(breaker, endpoint="http://127.0.0.1:2/v1")
    assert [(c.endpoint[-4], c.model, c.state) for c in await breaker.state()] == [
        ("1", "m", "open"),
        ("1", "other", "closed"),
        ("2", "m", "closed"),
    ]


async def test_of_many_at_once_one_probes_and_its_reply_lets_all_through(breaker, time):
    await opened(breaker)
    time.now += 4
    release = asyncio.Event()
    sent = []

    async def request(number):
        one = exchange()
        async with breaker.around(one):
            sent.append(number)
            await release.wait()
            end(one, "ok")

    tasks = [asyncio.create_task(request(number)) for number in range(50)]
    refusals = []
    for finished in itertools.islice(asyncio.as_completed(tasks), 49):
        with pytest.raises(ModelError, match="one request is probing it just now") as raised:
            await finished
        refusals.append(raised.value.wait_s)
    assert refusals == [None] * 49
    assert len(sent) == 1
    assert await state(breaker) == "half_open"
    release.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await state(breaker) == "closed"
    await ask(breaker)


@pytest.mark.parametrize("outcome", ["cancelled", "deadline", "auth", "rate_limit", "bad_request", "never sent"])
async def test_a_probe_that_proves_nothing_leaves_its_place_to_the_next(breaker, time, outcome):
    await opened(breaker)
    time.now += 4
    for _ in range(3):
        if outcome == "never sent":
            with contextlib.suppress(ZeroDivisionError):
                async with breaker.around(exchange()):
                    raise ZeroDivisionError
        else:
            with contextlib.suppress(ModelError):
                await ask(breaker, outcome)
        assert await state(breaker) == "half_open"
    await ask(breaker)
    assert await state(breaker) == "closed"


async def test_a_probe_cancelled_in_flight_leaves_its_place_to_the_next(breaker, time):
    await opened(breaker)
    time.now += 4

    entered = asyncio.Event()

    async def hang():
        async with breaker.around(exchange()):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ask(breaker)
    assert await state(breaker) == "closed"


async def test_it_stays_open_longer_each_time_up_to_a_limit(breaker, time):
    await opened(breaker)
    waits = []
    for _ in range(4):
        waits.append((await breaker.state())[0].retry_in_s)
        time.now += waits[-1]
        await fail(breaker, "timeout")
    assert waits == [4, 8, 10, 10]


async def test_a_flapping_endpoint_counts_as_opening_again_and_a_healed_one_does_not(breaker, time):
    async def heal():
        time.now += (await breaker.state())[0].retry_in_s
        await ask(breaker)

    await opened(breaker)
    await heal()
    await opened(breaker)
    assert (await breaker.state())[0].retry_in_s == 8
    await heal()
    time.now += 10
    await opened(breaker)
    assert (await breaker.state())[0].retry_in_s == 10
    await heal()
    time.now += 10.5
    await opened(breaker)
    assert (await breaker.state())[0].retry_in_s == 4


async def test_a_circuit_that_closed_counts_anew(breaker, time):
    await opened(breaker)
    time.now += 4
    for outcome in ["ok", "ok", "timeout", "ok", "ok", "timeout"]:
        with contextlib.suppress(ModelError):
            await ask(breaker, outcome)
    seen = (await breaker.state())[0]
    assert (seen.state, seen.faults, seen.requests) == ("closed", 2, 5)


async def test_late_results_of_an_older_epoch_change_nothing(breaker, time):
    late = [exchange() for _ in range(4)]
    async with contextlib.AsyncExitStack() as requests:
        for one in late[:2]:
            await requests.enter_async_context(breaker.around(one))
        await opened(breaker)
        end(late[0], "ok")
        end(late[1], "timeout")
    assert (await breaker.state())[0].retry_in_s == 4
    assert await state(breaker) == "open"

    guard = breaker.around(late[2])
    time.now += 4
    await guard.__aenter__()
    await fail(breaker, "circuit_open")
    end(late[2], "timeout")
    await guard.__aexit__(None, None, None)
    assert (await breaker.state())[0].retry_in_s == 8

    time.now += 8
    await ask(breaker)
    assert await state(breaker) == "closed"


async def test_changes_are_reported_once_each(circuits, time):
    seen = []
    breaker = Breaker(circuits, on_change=lambda before, now: seen.append((before, now.state)))
    await opened(breaker)
    time.now += 4
    await ask(breaker)
    await ask(breaker)
    assert seen == [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]


async def test_a_failing_listener_spoils_no_reply(circuits, time, caplog):
    def listener(before, now):
        raise ZeroDivisionError

    breaker = Breaker(circuits, on_change=listener)
    with caplog.at_level(logging.ERROR):
        await opened(breaker)
        time.now += 4
        await ask(breaker)
    assert await state(breaker) == "closed"
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    "wrong",
    [{"consecutive": 0}, {"share": 0}, {"share": 1.1}, {"least": 0}, {"window_s": 0}, {"first_open_s": 500}],
)
def test_a_policy_that_cannot_work_is_refused(wrong):
    with pytest.raises(ValueError, match="a breaker needs"):
        BreakerPolicy(**wrong)
