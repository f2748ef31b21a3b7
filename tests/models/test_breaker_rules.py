"""Random schedules of requests against a breaker and against its rules, in one process and shared by several."""

import asyncio
import contextlib
import math
import uuid

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from reflexion.models.breaker import Breaker, LocalCircuits
from reflexion.models.circuit import SLICES, BreakerPolicy
from reflexion.models.errors import ModelError
from reflexion.models.exchange import Exchange

POLICY = BreakerPolicy(consecutive=3, share=0.6, least=4, window_s=10, first_open_s=2, longest_open_s=7)

OWN_FAULTS = ["timeout", "connection", "overloaded", "invalid_reply"]
REPLIES = ["ok", "refused"]
SAYS_NOTHING = ["cancelled", "deadline", "unsent", "auth", "billing", "rate_limit", "context_length", "content_filter"]
OUTCOMES = st.one_of(*map(st.sampled_from, [OWN_FAULTS, OWN_FAULTS, REPLIES, SAYS_NOTHING]))


class Rules:
    """What a breaker may do, told by its history rather than by counters, and by identity rather than by epochs."""

    def __init__(self):
        self.state = "closed"
        self.closed_since = -math.inf
        self.openings = 0
        self.retry_at = 0
        self.history = []
        """Of this closed time: slice of the window and whether it was a fault."""
        self.counting = set()
        """Requests whose result still counts."""

    def admits(self, now):
        if self.state == "open":
            return now >= self.retry_at
        return self.state == "closed" or not self.counting

    def begins(self, request):
        if self.state == "open":
            self.state = "half_open"
        self.counting.add(request)

    def ends(self, request, outcome, now):
        if request not in self.counting:
            return
        self.counting.remove(request)
        if outcome in SAYS_NOTHING:
            return
        fault = outcome in OWN_FAULTS
        if self.state == "half_open":
            if fault:
                self.opens(self.openings + 1, now)
            else:
                self.state, self.closed_since, self.history = "closed", now, []
            return
        this = math.floor(now * SLICES / POLICY.window_s)
        self.history.append((this, fault))
        row = [was_fault for _, was_fault in self.history[-POLICY.consecutive :]]
        window = [was_fault for number, was_fault in self.history if number > this - SLICES]
        in_a_row = len(row) == POLICY.consecutive and all(row)
        by_share = len(window) >= POLICY.least and sum(window) / len(window) >= POLICY.share
        if fault and (in_a_row or by_share):
            peace = now - self.closed_since > POLICY.window_s
            self.opens(1 if peace else self.openings + 1, now)

    def opens(self, openings, now):
        self.state, self.openings = "open", openings
        self.retry_at = now + min(POLICY.longest_open_s, POLICY.first_open_s * 2 ** (openings - 1))
        self.counting = set()


class Schedule(RuleBasedStateMachine):
    def __init__(self, circuits):
        super().__init__()
        self.now = 1000.0
        self.rules = Rules()
        self.changes = []
        self.in_flight = []
        self.runner = asyncio.Runner()
        self.cleanup = contextlib.ExitStack()
        store = self.runner.run(circuits(lambda: self.now, self.cleanup, self.runner))
        self.breaker = Breaker(store, on_change=lambda before, now: self.changes.append((before, now.state)))

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 4.0, 11.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def a_request_begins(self):
        exchange = Exchange(endpoint="http://127.0.0.1:1/v1", model="m")
        guard = self.breaker.around(exchange)
        if not self.rules.admits(self.now):
            with pytest.raises(ModelError, match="its circuit has been"):
                self.runner.run(guard.__aenter__())
            return
        self.runner.run(guard.__aenter__())
        self.rules.begins(guard)
        self.in_flight.append((exchange, guard))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), outcome=OUTCOMES)
    def a_request_ends(self, data, outcome):
        self.ends(data.draw(st.integers(0, len(self.in_flight) - 1)), outcome)

    @precondition(lambda self: self.rules.admits(self.now))
    @rule(outcome=OUTCOMES)
    def a_request_begins_and_ends(self, outcome):
        self.a_request_begins()
        self.ends(-1, outcome)

    def ends(self, number, outcome):
        exchange, guard = self.in_flight.pop(number)
        error = None
        if outcome != "unsent":
            exchange.call = {"outcome": outcome}
        if outcome not in {"ok", "cancelled", "deadline", "unsent"}:
            error = exchange.error = ModelError(outcome, outcome)
        if outcome == "cancelled":
            error = asyncio.CancelledError()
        with contextlib.suppress(ModelError, asyncio.CancelledError):
            self.runner.run(guard.__aexit__(error and type(error), error, None))
        self.rules.ends(guard, outcome, self.now)

    @invariant()
    def it_shows_the_state_that_the_rules_give(self):
        for seen in self.runner.run(self.breaker.state()):
            assert seen.state == self.rules.state
            assert seen.openings == self.rules.openings
            if seen.state == "open":
                assert seen.retry_in_s == max(0, self.rules.retry_at - self.now)

    @invariant()
    def at_most_one_probe_is_in_flight(self):
        assert self.rules.state != "half_open" or len(self.rules.counting) <= 1

    @invariant()
    def changes_are_reported_in_a_chain_that_begins_closed(self):
        befores = [before for before, _ in self.changes]
        afters = [after for _, after in self.changes]
        assert befores == ["closed", *afters][: len(befores)]
        assert ["closed", *afters][-1] == self.rules.state

    def teardown(self):
        while self.in_flight:
            self.ends(-1, "cancelled")
        self.cleanup.close()
        self.runner.close()


async def local(clock, cleanup, runner):
    return LocalCircuits(POLICY, clock=clock)


@pytest.mark.parametrize("kept", ["in one process", "in Redis", "in PostgreSQL"])
def test_a_breaker_keeps_its_rules_under_any_schedule(kept, request):
    if kept == "in one process":
        circuits, examples = local, 150
    elif kept == "in PostgreSQL":
        url, examples = request.getfixturevalue("postgres_url"), 15

        async def circuits(clock, cleanup, runner):
            from reflexion.models.postgres_breaker import PostgresCircuits

            about = {"prefix": str(uuid.uuid4()), "lease_s": 1e6, "patience_s": 60}
            shared = PostgresCircuits(url, POLICY, **about, clock=clock)
            cleanup.callback(lambda: runner.run(shared.aclose()))
            return shared

    else:
        url, examples = request.getfixturevalue("redis_url"), 40
        prefix = request.getfixturevalue("prefix")

        async def circuits(clock, cleanup, runner):
            from reflexion.models.redis_breaker import RedisCircuits

            about = {"prefix": f"{prefix}:{uuid.uuid4()}", "lease_s": 1e6, "patience_s": 60}
            shared = RedisCircuits(url, POLICY, **about, clock=clock)
            cleanup.callback(lambda: runner.run(shared.aclose()))
            return shared

    run_state_machine_as_test(
        lambda: Schedule(circuits),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
