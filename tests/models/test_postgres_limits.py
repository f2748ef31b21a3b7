"""Buckets and circuits shared through a real PostgreSQL by workers that know nothing of each other."""

import asyncio
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limit_calls import exchange, line

from reflexion.models.breaker import Breaker
from reflexion.models.buckets import Claim, Limits, LocalBuckets
from reflexion.models.circuit import BreakerPolicy
from reflexion.models.errors import ModelError
from reflexion.models.limits import RateLimit
from reflexion.models.postgres_breaker import PostgresCircuits
from reflexion.models.postgres_buckets import PostgresBuckets, _Lane, _State

KEY = ("http://one/v1", "m")
MODEL = ("http://127.0.0.1:1/v1", "m")

WORKER = """
import asyncio, sys
from reflexion.models.buckets import Claim, Limits
from reflexion.models.postgres_buckets import PostgresBuckets

async def main():
    url, name = sys.argv[1:]
    buckets = PostgresBuckets(url, patience_s=60, clock=lambda: 1000.0)
    limits = Limits(requests_per_minute=60, burst_requests=25, tokens_per_minute=60, burst_tokens=1e6)
    print("ready", flush=True)
    sys.stdin.readline()
    # Each lane of its own, so that no turn of another's keeps one waiting.
    claims = [Claim(id=f"{name}-{n}", by=f"{name}-{n}", tokens=1, priority=n) for n in range(12)]
    answers = await asyncio.gather(*(retried(buckets, limits, claim) for claim in claims))
    print(sum(answers), flush=True)
    await buckets.aclose()

async def retried(buckets, limits, claim):
    while True:
        answer = await buckets.take(("http://one/v1", "m"), limits, claim)
        if answer.taken or answer.waiting_for != "turn":
            await buckets.withdraw(("http://one/v1", "m"), limits, claim.by)
            return answer.taken

asyncio.run(main())
"""


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
async def made(postgres_url):
    """Makes buckets and circuits as if each were in a process of its own."""
    open_ones = []

    def make(kind, *about, **more):
        open_ones.append(kind(postgres_url, *about, patience_s=60, **more))
        return open_ones[-1]

    yield make
    for one in open_ones:
        await one.aclose()


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 1.0, 7.0]),
        st.sampled_from([0.0, 5.0, 40.0, 300.0]),
        st.integers(0, 3),
        st.sampled_from([-0.5, 0.0, 0.3, 1.0]),
        st.booleans(),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_a_shared_bucket_answers_as_a_local_one_does(steps):
    limits = Limits(requests_per_minute=60, burst_requests=3, tokens_per_minute=600, burst_tokens=100, concurrency=3)
    clock, shared, held = Clock(), None, []
    local = LocalBuckets(clock)

    def shared_step(what, **details):
        nonlocal shared
        lane = _Lane(limits, _State(**json.loads(shared)) if shared else _State(), clock.now, 1e6)
        answer = getattr(lane, what)(**details) or lane.answer(taken=True)
        shared = json.dumps(lane.saved())
        return answer.taken, answer.requests_left, answer.tokens_left

    async def both():
        for number, (passes, tokens, which, share, taking) in enumerate(steps):
            clock.now += passes
            if taking or not held:
                claim = Claim(id=str(number), by="me", tokens=tokens)
                answer = await local.take(KEY, limits, claim)
                got = shared_step("take", claim=vars_of(claim))
                held.extend([(claim.id, tokens)] if answer.taken else [])
            else:
                call, reserved = held.pop(which % len(held))
                answer = await local.settle(KEY, limits, call, requests=0, tokens=reserved * share)
                got = shared_step("settle", id=call, back={"requests": 0, "tokens": reserved * share})
            assert got == pytest.approx((answer.taken, answer.requests_left, answer.tokens_left))

    asyncio.run(both())


def vars_of(claim):
    return {name: getattr(claim, name) for name in Claim.__slots__}


def test_processes_that_ask_at_once_together_get_what_there_is(postgres_url):
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, postgres_url, name], stdin=pipe, stdout=pipe, text=True)
        for name in "abc"
    ]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        granted = [int(worker.communicate(timeout=200)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert sum(granted) == 25


async def test_slots_are_shared(made):
    one, two = (RateLimit(Limits(concurrency=3), backend=made(PostgresBuckets)) for _ in range(2))
    in_flight, peak, full = 0, 0, asyncio.Event()

    async def call(limit):
        nonlocal in_flight, peak
        async with limit.around(exchange()) as _:
            in_flight += 1
            peak = max(peak, in_flight)
            if in_flight == 3:
                full.set()
            await full.wait()
            in_flight -= 1

    await asyncio.gather(*(call(limit) for limit in [one, two] * 5))
    assert (peak, in_flight) == (3, 0)


async def test_the_slot_of_a_dead_worker_falls_free_and_that_of_a_living_one_does_not(made):
    clock, limits = Clock(), Limits(concurrency=1, tokens_per_minute=60, burst_tokens=100)
    one, two = (made(PostgresBuckets, clock=clock, lease_s=30) for _ in range(2))
    assert (await one.take(KEY, limits, Claim(id="a", by="one", tokens=40))).taken
    clock.now += 29
    await one._run(KEY, limits, "renew", ids=["a"])
    clock.now += 29
    assert not (await two.take(KEY, limits, Claim(id="b", by="two", tokens=0))).taken
    one._stop_renewing()
    clock.now += 2
    answer = await two.take(KEY, limits, Claim(id="b", by="two", tokens=0))
    assert (answer.taken, answer.tokens_left) == (True, 100)
    # What the dead one used beyond its reservation is owed when it settles after all; what it did not use stays taken.
    for back, left in ((30, 100), (-25, 75)):
        assert (await one.settle(KEY, limits, "a", requests=0, tokens=back)).tokens_left == left


async def test_workers_take_turns_and_one_that_is_silent_loses_its_own(made):
    clock, limits = Clock(), Limits(requests_per_minute=60, burst_requests=1)
    one, two = (made(PostgresBuckets, clock=clock) for _ in range(2))
    assert (await one.take(KEY, limits, Claim(id="a", by="one", tokens=0))).taken
    assert (await two.take(KEY, limits, Claim(id="b", by="two", tokens=0, turn_s=1))).waiting_for == "requests"
    clock.now += 1
    assert (await one.take(KEY, limits, Claim(id="c", by="one", tokens=0))).waiting_for == "turn"
    clock.now += 1.5
    assert (await one.take(KEY, limits, Claim(id="c", by="one", tokens=0))).taken
    again = await one.take(KEY, limits, Claim(id="c", by="one", tokens=0))
    assert (again.taken, again.requests_left) == (True, 0)


async def test_a_call_that_is_let_through_settles_when_it_is_cancelled(made):
    one, two = (RateLimit(Limits(concurrency=1), backend=made(PostgresBuckets)) for _ in range(2))
    inside = asyncio.Event()

    async def stay():
        async with one.around(exchange()):
            inside.set()
            await asyncio.Event().wait()

    call = asyncio.create_task(stay())
    await inside.wait()
    call.cancel()
    await asyncio.wait([call])
    async with asyncio.timeout(20), two.around(request := exchange()):  # a lease lasts longer
        request.call = line(0)


async def test_workers_share_a_circuit_and_send_one_probe(made):
    clock = Clock()
    policy = BreakerPolicy(consecutive=3)
    one, two = (made(PostgresCircuits, policy, clock=clock, lease_s=100) for _ in range(2))
    for step in [await one.enter(MODEL) for _ in range(3)]:
        await one.leave(MODEL, step.epoch, "fault", "from \ud800 afar")
    with pytest.raises(ModelError, match="the last fault: from"):
        async with Breaker(two).around(exchange_of_model()):
            pytest.fail("sent")
    clock.now += policy.first_open_s
    steps = await asyncio.gather(*(circuits.enter(MODEL) for circuits in [one, two] * 10))
    (probe,) = [step for step in steps if step.epoch is not None]
    clock.now += 101  # whoever holds it has died
    second = await two.enter(MODEL)
    assert second.epoch not in {None, probe.epoch}
    assert (await one.leave(MODEL, probe.epoch, "reply", "")).after.state == "half_open"
    assert (await two.leave(MODEL, second.epoch, "reply", "")).after.state == "closed"
    assert [seen.state for seen in await one.states()] == ["closed"]
    for circuits in (one, two):
        for lease in circuits._leases.values():
            lease.cancel()


def exchange_of_model():
    request = exchange()
    request.endpoint, request.model = MODEL
    return request


async def test_without_the_database_no_call_is_let_through_and_circuits_are_each_workers_own(closed_port, caplog):
    url = f"postgresql://u:secret@127.0.0.1:{closed_port}/d"
    limit = RateLimit(Limits(requests_per_minute=60), backend=PostgresBuckets(url))
    with pytest.raises(ModelError, match="shared limits in PostgreSQL cannot be reached") as caught:
        async with limit.around(exchange()):
            pytest.fail("sent")
    assert caught.value.retryable
    circuits = PostgresCircuits(url, BreakerPolicy(consecutive=3), patience_s=60)
    for step in [await circuits.enter(MODEL) for _ in range(3)]:
        await circuits.leave(MODEL, step.epoch, "fault", "")
    assert (await circuits.enter(MODEL)).after.state == "open"
    assert "PostgreSQL gave no answer" in caplog.text
    assert "secret" not in caplog.text + str(caught.value)
    await circuits.aclose()


async def test_many_requests_at_once_all_share_one_circuit(postgres_url, caplog):
    circuits = PostgresCircuits(postgres_url, patience_s=60)
    with caplog.at_level("WARNING"):
        steps = await asyncio.gather(*(circuits.enter(MODEL) for _ in range(300)))
        await asyncio.gather(*(circuits.leave(MODEL, step.epoch, "reply", "") for step in steps))
    assert caplog.records == []
    assert [seen.requests for seen in await circuits.states()] == [300]
    await circuits.aclose()


def test_circuits_outlive_the_event_loop_in_which_they_were_used(postgres_url):
    circuits = PostgresCircuits(postgres_url, patience_s=60)

    async def use():
        step = await circuits.enter(MODEL)
        await circuits.leave(MODEL, step.epoch, "reply", "")
        states = await circuits.states()
        await circuits.aclose()
        return states[0].requests

    assert [asyncio.run(use()), asyncio.run(use())] == [1, 2]
