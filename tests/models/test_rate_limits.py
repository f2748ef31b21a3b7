"""What requests wait for, for how long, and what is given back, with time that is passed by hand."""

import asyncio

import pytest
from limit_calls import exchange, line, most_over
from virtual_time import VirtualTime

from reflexion.models.buckets import LocalBuckets
from reflexion.models.ends import DeadlineExceeded
from reflexion.models.limits import Limits, LimitWaitExceeded, RateLimit


@pytest.fixture
def time():
    return VirtualTime()


def guard(time, **limits):
    return RateLimit(Limits(**limits), clock=time.clock, sleep=time.sleep)


async def send(limit, time, log, request, *, used=0, takes=0.0, at=0.0):
    """One call that uses so many tokens; logs when it was let through."""
    await time.sleep_until(at)
    async with limit.around(request):
        log.append((time.now, request))
        await time.sleep(takes)
        request.call = line(used)


def times(log):
    return [when for when, _ in log]


def runs(log):
    return "".join(request.run_id for _, request in log)


async def test_a_call_without_limits_goes_at_once(time):
    log = []
    await time.run(*(send(guard(time), time, log, exchange()) for _ in range(50)))
    assert times(log) == [0.0] * 50


async def test_requests_per_minute_are_spread_over_the_minute(time):
    limit, log = guard(time, requests_per_minute=30), []
    await time.run(*(send(limit, time, log, exchange()) for _ in range(5)))
    assert times(log) == pytest.approx([0, 2, 4, 6, 8])


async def test_a_burst_goes_at_once_and_then_the_rate_holds(time):
    limit, log = guard(time, requests_per_minute=60, burst_requests=3), []
    await time.run(*(send(limit, time, log, exchange()) for _ in range(5)))
    assert times(log) == pytest.approx([0, 0, 0, 1, 2])


async def test_tokens_per_minute_hold_back_what_requests_per_minute_would_let_through(time):
    limit, log = guard(time, requests_per_minute=6000, tokens_per_minute=6000, burst_tokens=1000), []
    calls = (send(limit, time, log, exchange(tokens=500), used=500) for _ in range(4))
    await time.run(*calls)
    assert times(log) == pytest.approx([0, 0, 5, 10])


async def test_endpoints_and_models_have_buckets_of_their_own(time):
    limit, log = guard(time, requests_per_minute=1), []
    other = exchange("b")
    other.model = "other"
    await time.run(send(limit, time, log, exchange("a")), send(limit, time, log, other))
    assert times(log) == [0, 0]


async def test_tokens_that_a_reply_did_not_use_are_given_back(time):
    limit, log = guard(time, tokens_per_minute=600, burst_tokens=1000), []
    first = send(limit, time, log, exchange(tokens=1000), used=100, takes=1)
    await time.run(first, send(limit, time, log, exchange(tokens=900), used=900))
    assert times(log) == pytest.approx([0, 1])


async def test_tokens_beyond_the_reservation_are_owed(time):
    limit, log = guard(time, tokens_per_minute=600, burst_tokens=100), []
    first = send(limit, time, log, exchange(tokens=100), used=300, takes=1)
    second = send(limit, time, log, exchange(tokens=50), used=50, at=2)
    await time.run(first, second)
    assert times(log) == pytest.approx([0, 25])


async def test_a_call_larger_than_the_burst_goes_when_the_bucket_is_full_and_leaves_a_debt(time):
    limit, log = guard(time, tokens_per_minute=600, burst_tokens=100), []
    small = send(limit, time, log, exchange(tokens=50), used=50)
    large = send(limit, time, log, exchange(tokens=1000), used=1000, at=0.5)
    after = send(limit, time, log, exchange(tokens=100), used=100, at=0.6)
    await time.run(small, large, after)
    assert times(log) == pytest.approx([0, 5, 105])


async def test_a_request_that_an_inner_guard_refused_gives_all_back(time):
    limit, log = guard(time, requests_per_minute=1, tokens_per_minute=60, burst_tokens=60), []

    async def refused():
        async with limit.around(exchange(tokens=60)):
            raise RuntimeError("an open circuit")

    results = await time.run(refused(), send(limit, time, log, exchange(tokens=60), used=60))
    assert isinstance(results[0], RuntimeError)
    assert times(log) == [0]


async def test_a_request_that_failed_after_it_was_sent_keeps_its_request(time):
    limit, log = guard(time, requests_per_minute=60, tokens_per_minute=60, burst_tokens=60), []
    await time.run(
        send(limit, time, log, exchange(tokens=60), used=0), send(limit, time, log, exchange(tokens=60), used=0)
    )
    assert times(log) == [0, 1]


async def test_a_cancelled_wait_takes_nothing_and_lets_the_next_one_go(time):
    limit, log = guard(time, requests_per_minute=1), []
    first = asyncio.create_task(send(limit, time, log, exchange("a")))
    second = asyncio.create_task(send(limit, time, log, exchange("b"), at=1))
    third = asyncio.create_task(send(limit, time, log, exchange("c"), at=2))

    async def cancel():
        await time.sleep_until(10)
        second.cancel()

    await time.run(first, second, third, cancel())
    assert second.cancelled()
    assert [(when, request.run_id) for when, request in log] == [(0, "a"), (60, "c")]
    assert [(s.queued, s.in_flight) for s in limit.state()] == [(0, 0)]


class SlowBuckets(LocalBuckets):
    """Buckets that are some way off."""

    async def take(self, key, limits, claim):
        await asyncio.sleep(0)
        answer = await super().take(key, limits, claim)
        await asyncio.sleep(0)
        return answer


@pytest.mark.parametrize("backend", [LocalBuckets, SlowBuckets])
@pytest.mark.parametrize("steps", range(8))
async def test_a_call_cancelled_around_the_moment_it_is_let_through_gives_all_back(time, backend, steps):
    buckets = backend(time.clock)
    limits = Limits(requests_per_minute=1, tokens_per_minute=60, burst_tokens=60, concurrency=1)
    limit, log = RateLimit(limits, backend=buckets, clock=time.clock, sleep=time.sleep), []

    async def unlucky():
        async with limit.around(exchange(tokens=60)):
            await asyncio.sleep(1)

    cancelled = asyncio.create_task(unlucky())
    for _ in range(steps):
        await asyncio.sleep(0)
    cancelled.cancel()
    await time.run(cancelled, send(limit, time, log, exchange("b", tokens=60), used=60))
    assert cancelled.cancelled()
    assert times(log) == [0]
    assert [(s.queued, s.in_flight) for s in limit.state()] == [(0, 0)]
    assert buckets._states[exchange().key].in_flight == set()


async def test_no_more_calls_than_slots_are_in_flight(time):
    limit, log = guard(time, concurrency=2), []
    await time.run(*(send(limit, time, log, exchange(), takes=3) for _ in range(5)))
    assert times(log) == [0, 0, 3, 3, 6]


async def test_a_wait_beyond_the_longest_fails_and_says_what_for(time):
    limit, log = guard(time, tokens_per_minute=60, burst_tokens=100, max_wait_s=30), []
    _, error = await time.run(
        send(limit, time, log, exchange(tokens=100), used=100), send(limit, time, log, exchange(tokens=90))
    )
    assert isinstance(error, LimitWaitExceeded)
    assert str(error) == (
        "waited 30.0 s for tokens of 60 per minute of http://one/v1 m, with 0 more calls queued, "
        "and gave up unsent; raise max_wait_s or the limit, or run fewer at once"
    )
    assert (error.kind, error.retryable, error.waiting_for, error.waited_s) == ("rate_limit", False, "tokens", 30)
    assert time.now == 30


@pytest.mark.parametrize(
    ("limits", "waiting_for", "named"),
    [
        ({"requests_per_minute": 1}, "requests", "a request of 1 per minute"),
        ({"concurrency": 1}, "concurrency", "one of 1 slots"),
    ],
)
async def test_the_error_names(time, limits, waiting_for, named):
    limit, log = guard(time, max_wait_s=5, **limits), []
    _, error = await time.run(send(limit, time, log, exchange(), takes=9), send(limit, time, log, exchange(), at=1))
    assert error.waiting_for == waiting_for
    assert named in str(error)


async def test_the_exchanges_deadline_ends_the_wait_on_its_own_clock(time):
    limit, log = guard(time, requests_per_minute=1), []
    late = exchange(deadline=1007.0, clock=lambda: 1000 + time.now)
    _, error = await time.run(send(limit, time, log, exchange()), send(limit, time, log, late))
    assert isinstance(error, DeadlineExceeded)
    assert time.now == 7


async def test_a_run_with_many_calls_does_not_hold_up_a_run_with_one(time):
    limit, log = guard(time, requests_per_minute=60), []
    many = [send(limit, time, log, exchange("a")) for _ in range(100)]
    await time.run(*many, send(limit, time, log, exchange("b"), at=5.5))
    assert runs(log).index("b") == 7  # one call of the other run goes before it


async def test_runs_take_turns(time):
    limit, log = guard(time, requests_per_minute=60), []
    later = [send(limit, time, log, exchange(run), at=0.5) for run in "aaaabbbcc"]
    await time.run(send(limit, time, log, exchange("x")), *later)
    assert runs(log) == "xabcabcaba"


async def test_a_higher_priority_goes_first(time):
    limit, log = guard(time, requests_per_minute=60), []
    await time.run(
        send(limit, time, log, exchange("x")),
        *(send(limit, time, log, exchange(run, priority=p), at=0.5) for run, p in [("l", 0), ("m", 1), ("h", 2)]),
    )
    assert runs(log) == "xhml"


async def test_a_low_priority_is_served_once_it_has_aged_past_a_steady_stream_of_higher_ones(time):
    limit, log = guard(time, requests_per_minute=60, ageing_s=10), []
    stream = [send(limit, time, log, exchange("h", priority=2), at=i * 0.999) for i in range(60)]
    await time.run(*stream, send(limit, time, log, exchange("l"), at=0.5))
    [low] = [when for when, request in log if request.run_id == "l"]
    assert 20 <= low <= 23


async def test_what_a_long_pause_has_refilled_is_not_given_back_on_top(time):
    """A bucket that was full meanwhile would be no fuller had the first call reserved less."""
    limit, log = guard(time, tokens_per_minute=60, burst_tokens=1000, max_wait_s=2000), []
    long = send(limit, time, log, exchange(tokens=1000), used=0, takes=5000)
    again = [send(limit, time, log, exchange(tokens=1000), used=1000, at=4999) for _ in range(2)]
    await time.run(long, *again)
    assert times(log) == pytest.approx([0, 4999, 5999], abs=1)
    assert most_over([(when, 1000) for when in times(log)[1:]], 1, 1000) <= 1e-6


async def test_the_state_shows_what_is_left_and_who_waits(time):
    limit, log = guard(time, requests_per_minute=60, tokens_per_minute=600, burst_tokens=100), []
    seen = []

    async def look():
        await time.sleep_until(2)
        seen.extend(limit.state())

    calls = (send(limit, time, log, exchange(tokens=150), takes=5, used=150) for _ in range(3))
    await time.run(*calls, look())
    assert [(s.endpoint, s.model, s.queued, s.in_flight) for s in seen] == [("http://one/v1", "m", 2, 1)]
    assert seen[0].tokens_left == pytest.approx(-30)
    assert seen[0].requests_left == pytest.approx(1)


async def test_a_bug_in_the_buckets_reaches_the_call_that_waits(time):
    limit = guard(time)

    async def broken(*_):
        raise ZeroDivisionError

    limit._buckets.take = broken
    with pytest.raises(ZeroDivisionError):
        await limit.around(exchange()).__aenter__()


def test_one_guard_serves_one_event_loop_after_another(time):
    limit = guard(time, concurrency=1)
    for _ in range(2):
        asyncio.run(time.run(*(send(limit, time, [], exchange(), takes=1) for _ in range(3))))
    assert time.now == 6


@pytest.mark.parametrize(
    ("limits", "requests", "tokens"),
    [
        ({"requests_per_minute": 600, "tokens_per_minute": 6000}, 10, 1000),
        ({"requests_per_minute": 6, "tokens_per_minute": 5}, 1, 1),
        ({"requests_per_minute": 6, "burst_requests": 3, "tokens_per_minute": 6, "burst_tokens": 7}, 3, 7),
    ],
)
def test_bursts_have_defaults(limits, requests, tokens):
    assert (Limits(**limits).requests.burst, Limits(**limits).tokens.burst) == (requests, tokens)


@pytest.mark.parametrize("field", ["requests_per_minute", "burst_tokens", "concurrency", "ageing_s", "max_wait_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_lets_nothing_through_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        Limits(**{field: value})
