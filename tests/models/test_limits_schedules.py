"""The whole guard under random schedules of calls, failures, cancels and replies."""

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from limit_calls import exchange, line, most_over
from virtual_time import VirtualTime

from reflexion.models.limits import Limits, LimitWaitExceeded, RateLimit

LIMITS = Limits(
    requests_per_minute=120,
    tokens_per_minute=12_000,
    burst_requests=4,
    burst_tokens=1500,
    concurrency=2,
    max_wait_s=100,
    ageing_s=5,
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One call: when it comes, what it reserves and uses, how long it takes and how it ends."""

    at: float
    run: str
    priority: int
    tokens: int
    share: float
    takes: float
    ends: str
    patience: float
    """Seconds after which whoever waits for it cancels it."""


PLANS = st.lists(
    st.builds(
        Plan,
        at=st.floats(0, 20),
        run=st.sampled_from("abc"),
        priority=st.integers(0, 2),
        tokens=st.sampled_from([0, 0, 50, 400, 1500, 3000]),
        share=st.sampled_from([0, 0.2, 1]),
        takes=st.sampled_from([0, 0.1, 2, 20]),
        ends=st.sampled_from(["reply", "reply", "reply", "failure", "unsent"]),
        patience=st.sampled_from([0.5, 5, 1e6, 1e6, 1e6]),
    ),
    min_size=1,
    max_size=25,
)


class Log:
    """What happened."""

    def __init__(self):
        self.queued = []
        self.sent = {}
        self.used = {}
        self.failed = []
        self.in_flight = 0
        self.peak = 0


async def call(limit, time, log, number, plan):
    await time.sleep_until(plan.at)
    request = exchange(plan.run, tokens=plan.tokens, priority=plan.priority)
    log.queued.append(number)
    try:
        async with limit.around(request):
            if plan.ends == "unsent":
                return
            log.sent[number] = time.now
            log.used[number] = plan.tokens
            log.in_flight += 1
            log.peak = max(log.peak, log.in_flight)
            try:
                await time.sleep(plan.takes)
                log.used[number] = plan.tokens * plan.share
            finally:
                log.in_flight -= 1
                request.call = line(int(log.used[number]))
            if plan.ends == "failure":
                raise ConnectionError
    except LimitWaitExceeded:
        log.failed.append(number)


async def impatient(limit, time, log, number, plan):
    task = asyncio.create_task(call(limit, time, log, number, plan))
    watch = asyncio.create_task(time.sleep_until(plan.at + plan.patience))
    await asyncio.wait([task, watch], return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    watch.cancel()
    await asyncio.wait([task])


@settings(max_examples=80, deadline=None)
@given(plans=PLANS)
def test_every_promise_holds(plans):
    time, log = VirtualTime(), Log()
    limit = RateLimit(LIMITS, clock=time.clock, sleep=time.sleep)
    asyncio.run(time.run(*(impatient(limit, time, log, number, plan) for number, plan in enumerate(plans))))

    tokens = sorted((when, log.used[number]) for number, when in log.sent.items())
    largest = max(LIMITS.tokens.burst, *(plan.tokens for plan in plans))
    assert most_over(tokens, LIMITS.tokens.per_s, largest) <= 1e-3
    requests = [(when, 1) for when, _ in tokens]
    assert most_over(requests, LIMITS.requests.per_s, LIMITS.requests.burst) <= 1e-3
    assert log.peak <= LIMITS.concurrency

    for run in "abc":
        for priority in range(3):
            mine = [n for n in log.queued if (plans[n].run, plans[n].priority) == (run, priority)]
            assert [n for n in log.sent if n in mine] == [n for n in mine if n in log.sent], "first come, first served"

    for number, when in log.sent.items():
        assert when - plans[number].at <= LIMITS.max_wait_s + 1e-6
    patient = [n for n, plan in enumerate(plans) if plan.patience > 1e3 and plan.ends != "unsent"]
    assert all(n in log.sent or n in log.failed for n in patient), "a call was lost"

    [state] = limit.state()
    assert (state.queued, state.in_flight) == (0, 0)
    time.now += 1000
    [state] = limit.state()
    assert (state.requests_left, state.tokens_left) == (LIMITS.requests.burst, LIMITS.tokens.burst)
    assert limit._buckets._states[exchange().key].in_flight == set()


def test_a_thousand_runs_at_once_keep_to_the_slots_and_none_is_lost():
    time, log = VirtualTime(), Log()
    limit = RateLimit(Limits(concurrency=50), clock=time.clock, sleep=time.sleep)
    plan = Plan(at=0, run="", priority=0, tokens=100, share=1, takes=0.047, ends="reply", patience=1e6)
    asyncio.run(time.run(*(call(limit, time, log, number, plan) for number in range(1000))))
    assert len(log.sent) == 1000
    assert log.peak == 50
    assert abs(time.now - 20 * 0.047) < 1e-6
