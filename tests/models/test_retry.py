"""The retry policy alone: waits are written down instead of slept."""

import asyncio
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.models.ends import DeadlineExceeded
from reflexion.models.errors import RETRYABLE, ErrorKind, ModelError
from reflexion.models.retry import RetryPolicy


class Waits(list):
    """Takes the place of sleeping: time passes at once."""

    now = 0.0

    async def sleep(self, seconds):
        self.append(seconds)
        self.now += seconds

    def clock(self):
        return self.now


@pytest.fixture
def waits():
    return Waits()


def policy(waits, **changes):
    """With the longest wait that the jitter allows."""
    return RetryPolicy(uniform=lambda low, high: high, sleep=waits.sleep, **changes)


def failing(error, times=10**6):
    tries = []

    async def attempt(retry):
        tries.append(retry)
        if len(tries) <= times:
            raise error
        return "reply"

    return attempt, tries


async def test_what_passes_is_repeated_with_doubling_waits_until_it_succeeds(waits):
    attempt, tries = failing(ModelError("overloaded", "503"), times=3)
    assert await policy(waits).run(attempt) == "reply"
    assert tries == [0, 1, 2, 3]
    assert waits == [0.5, 1, 2]


@pytest.mark.parametrize("kind", get_args(ErrorKind))
async def test_only_passing_faults_are_repeated(waits, kind):
    attempt, tries = failing(ModelError(kind, "no"))
    with pytest.raises(ModelError) as raised:
        await policy(waits, max_retries=3).run(attempt)
    assert raised.value.kind == kind
    assert len(tries) == (4 if kind in RETRYABLE else 1)
    assert len(waits) == len(tries) - 1


async def test_other_errors_and_cancellation_pass_untouched(waits):
    for error in (ValueError("no"), asyncio.CancelledError(), DeadlineExceeded("late")):
        attempt, tries = failing(error)
        with pytest.raises(type(error)):
            await policy(waits).run(attempt)
        assert tries == [0]


async def test_the_last_error_is_raised_as_it_came(waits):
    error = ModelError("timeout", "late")
    attempt, _ = failing(error)
    with pytest.raises(ModelError) as raised:
        await policy(waits).run(attempt)
    assert raised.value is error
    assert error.__cause__ is None


async def test_what_the_server_asks_for_is_waited_and_some_jitter_more(waits):
    attempt, _ = failing(ModelError("rate_limit", "429", wait_s=7), times=2)
    await policy(waits).run(attempt)
    assert waits == [7.5, 7.5]


async def test_a_server_that_asks_for_no_wait_at_all_still_gets_backoff(waits):
    attempt, _ = failing(ModelError("rate_limit", "429", wait_s=0), times=3)
    await policy(waits).run(attempt)
    assert waits == [0.5, 1, 2]


async def test_asked_for_more_than_is_allowed_the_call_ends_at_once(waits):
    error = ModelError("rate_limit", "429", status=429, wait_s=3600, parameter="p", said="s")
    attempt, tries = failing(error)
    with pytest.raises(ModelError, match=r"429 \(asked to wait 3600 s, more than the 60 s allowed\)") as raised:
        await policy(waits).run(attempt)
    assert tries == [0]
    assert waits == []
    known = raised.value
    assert (known.kind, known.status, known.wait_s, known.parameter, known.said) == ("rate_limit", 429, 3600, "p", "s")


async def test_no_wait_goes_beyond_the_deadline(waits):
    attempt, tries = failing(ModelError("overloaded", "503"))
    with pytest.raises(DeadlineExceeded, match=r"no time left to wait 2\.0 s and try again: 503"):
        await policy(waits, max_retries=10).run(attempt, deadline=3.5, clock=waits.clock)
    assert tries == [0, 1, 2]
    assert waits.now == 1.5


async def test_nothing_that_an_attempt_holds_is_held_while_waiting(waits):
    slot = asyncio.Semaphore(1)
    free = []

    async def attempt(retry):
        async with slot:
            raise ModelError("overloaded", "503")

    async def sleep(seconds):
        free.append(not slot.locked())

    with pytest.raises(ModelError):
        await RetryPolicy(sleep=sleep).run(attempt)
    assert free == [True] * 3


@given(
    retry=st.integers(0, 5000),
    asked_s=st.none() | st.floats(0, 60),
    first_wait_s=st.floats(0, 60),
    jitter=st.floats(0, 1),
)
def test_a_wait_lies_between_what_was_asked_and_what_is_allowed(retry, asked_s, first_wait_s, jitter):
    policy = RetryPolicy(
        max_retries=10_000, first_wait_s=first_wait_s, uniform=lambda low, high: low + jitter * (high - low)
    )
    wait_s = policy.wait_s(ModelError("overloaded", "503", wait_s=asked_s), retry)
    assert (asked_s or 0) <= wait_s <= (asked_s or 0) + 60
    if not asked_s:
        assert wait_s <= first_wait_s * 2.0 ** min(retry, 1000)


def test_many_clients_that_fail_together_do_not_return_together():
    waits = [RetryPolicy(max_retries=9).wait_s(ModelError("overloaded", "503"), 4) for _ in range(2000)]
    assert 0 <= min(waits) < 0.2
    assert 7.8 < max(waits) <= 8
    assert 3.6 < sum(waits) / len(waits) < 4.4


@pytest.mark.parametrize("wrong", [{"max_retries": -1}, {"first_wait_s": -1}, {"max_wait_s": -1}])
def test_a_policy_that_cannot_work_is_refused(wrong):
    with pytest.raises(ValueError, match="no negative numbers"):
        RetryPolicy(**wrong)
