"""Buckets of this process and in Redis under random takings, endings, cancels and pauses: one set of promises."""

import asyncio
import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from limit_calls import most_over

from reflexion.models.buckets import Claim, Limits, LocalBuckets
from reflexion.models.redis_buckets import RedisBuckets

KEY = ("http://one/v1", "m")
LIMITS = Limits(
    requests_per_minute=60, tokens_per_minute=6000, burst_requests=3, burst_tokens=1000, concurrency=4, max_wait_s=1e9
)
CLOSE = 1e-3
"""Tokens. What rounding may add up to."""


class Takings(RuleBasedStateMachine):
    """Calls that take, use some of it, more than it or nothing, and buckets that must not let through too much."""

    url = prefix = ""
    """Of the Redis that must agree with this process's buckets; empty for none."""
    calls = Bundle("calls")

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self.loop = asyncio.Runner()
        self.stores = [LocalBuckets(lambda: self.now)]
        if self.url:
            prefix = f"{self.prefix}:{uuid.uuid4().hex}"
            about = {"prefix": prefix, "lease_s": 1e6, "patience_s": 60, "clock": lambda: self.now}
            self.stores.append(RedisBuckets(self.url, **about))
        self.sent = {}
        """By id: when it was let through, its reservation, and what it used; None for as long as it is in flight."""
        self.unsent = {}
        self.overrun = False
        self.number = 0

    def teardown(self):
        try:
            for call in [call for call, (_, _, used) in self.sent.items() if used is None]:
                self.all_agree("settle", call, requests=1, tokens=0)
            self.now += 1e6
            answer = self.left()
            assert answer.tokens_left == LIMITS.tokens.burst
            assert answer.requests_left == LIMITS.requests.burst
        finally:
            for store in self.stores[1:]:
                self.loop.run(store.aclose())
            self.loop.close()

    def left(self):
        """What is left, by a taking that is refused or given back."""
        answer = self.all_agree("take", Claim(id="probe", by="me", tokens=9999))
        return self.all_agree("settle", "probe", requests=1, tokens=9999) if answer.taken else answer

    def all_agree(self, what, *args, **fields):
        answers = [self.loop.run(getattr(store, what)(KEY, LIMITS, *args, **fields)) for store in self.stores]
        for other in answers[1:]:
            assert (other.taken, other.waiting_for) == (answers[0].taken, answers[0].waiting_for)
            assert other.tokens_left == pytest.approx(answers[0].tokens_left, abs=CLOSE)
            assert other.requests_left == pytest.approx(answers[0].requests_left, abs=CLOSE)
        return answers[0]

    @rule(seconds=st.sampled_from([0.01, 0.3, 1, 4, 30]))
    def wait(self, seconds):
        self.now += seconds

    @rule(target=calls, tokens=st.sampled_from([0, 10, 200, 600, 1000, 2500]))
    def take(self, tokens):
        self.number += 1
        call = f"call {self.number}"
        answer = self.all_agree("take", Claim(id=call, by="me", tokens=tokens))
        if not answer.taken:
            assert answer.wait_s > 0
            return multiple()
        self.sent[call] = (self.now, tokens, None)
        return call

    @rule(call=consumes(calls), share=st.sampled_from([0, 0.1, 0.5, 1, 1.5]))
    def end(self, call, share):
        when, tokens, _ = self.sent[call]
        used = tokens * share
        self.overrun |= used > tokens
        before = self.left().tokens_left
        after = self.all_agree("settle", call, requests=0, tokens=tokens - used).tokens_left
        if used > tokens:
            assert after == pytest.approx(before + tokens - used, abs=CLOSE)
        self.sent[call] = (when, tokens, used)

    @rule(call=consumes(calls))
    def cancel_before_it_is_sent(self, call):
        when, tokens, _ = self.sent.pop(call)
        self.unsent[call] = when
        self.all_agree("settle", call, requests=1, tokens=tokens)

    @invariant()
    def no_window_holds_more_than_rate_times_time_and_burst(self):
        calls = list(self.sent.values())
        tokens = [(when, taken if used is None else min(used, taken)) for when, taken, used in calls]
        largest = max([LIMITS.tokens.burst, *(taken for _, taken, _ in calls)])
        assert most_over(tokens, LIMITS.tokens.per_s, largest) <= CLOSE
        requests = [(when, 1) for when, _, _ in calls]
        assert most_over(requests, LIMITS.requests.per_s, LIMITS.requests.burst) <= CLOSE

    @invariant()
    def no_more_than_the_slots_are_in_flight(self):
        assert sum(used is None for _, _, used in self.sent.values()) <= LIMITS.concurrency

    @invariant()
    def no_more_is_left_and_no_less_than_had_each_call_taken_only_what_it_used(self):
        if self.overrun:  # an overrun is owed from when it is known
            return
        level, at = LIMITS.tokens.burst, 1000.0
        for when, taken, used in self.sent.values():
            level = min(LIMITS.tokens.burst, level + LIMITS.tokens.per_s * (when - at)) - (
                taken if used is None else used
            )
            at = when
        level = min(LIMITS.tokens.burst, level + LIMITS.tokens.per_s * (self.now - at))
        assert self.left().tokens_left == pytest.approx(level, abs=CLOSE)


def test_buckets_of_this_process_keep_their_promises():
    run_state_machine_as_test(Takings, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))


def test_buckets_in_redis_do_the_same(redis_url, prefix):
    own = prefix

    class WithRedis(Takings):
        url = redis_url
        prefix = own

    run_state_machine_as_test(WithRedis, settings=settings(max_examples=15, stateful_step_count=25, deadline=None))
