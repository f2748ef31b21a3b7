"""Token buckets for requests and tokens per minute, and the slots of calls in flight, in this process."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Key = tuple[str, str]
"""Endpoint and model."""
Clock = Callable[[], float]
WaitingFor = Literal["requests", "tokens", "concurrency", "turn"]
"""What keeps a call waiting; `turn` is another process's turn."""

ROUNDING = 1e-6
"""Requests or tokens that rounding may leave missing after the exact wait."""

TOKEN_BURST_S = 10.0
"""A call is thousands of tokens at once: a burst of a second's worth would be smaller than most calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A token bucket's measures."""

    per_s: float
    burst: float

    @classmethod
    def of(cls, per_minute: float | None, burst: float | None, default_burst_s: float) -> "Rate | None":
        """The rate in seconds; without a stated burst, one of so many seconds' worth, and at least 1."""
        if per_minute is None:
            return None
        per_s = per_minute / 60
        return cls(per_s=per_s, burst=max(1.0, per_s * default_burst_s) if burst is None else burst)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one endpoint and model may be asked. None sets no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    """Prompt and reply together."""
    burst_requests: float | None = None
    """Requests at once after a pause. Default: one second's worth, at least 1, as endpoints check shorter spans too."""
    burst_tokens: float | None = None
    """Tokens at once after a pause. Default: ten seconds' worth; a larger call waits until the bucket is full."""
    concurrency: int | None = None
    """Calls in flight."""
    max_wait_s: float = 300.0
    """How long a call queues before it fails."""
    ageing_s: float = 10.0
    """A waiting call gains one level of priority in so many seconds."""

    def __post_init__(self) -> None:
        """Refuse numbers that would let nothing through."""
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value!r}; leave it out for no limit")

    @property
    def requests(self) -> Rate | None:
        """The bucket of requests."""
        return Rate.of(self.requests_per_minute, self.burst_requests, 1.0)

    @property
    def tokens(self) -> Rate | None:
        """The bucket of tokens."""
        return Rate.of(self.tokens_per_minute, self.burst_tokens, TOKEN_BURST_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one call wants to take, and its place in the order."""

    id: str
    by: str
    """Who queues for it: one name for each `RateLimit`, as each sends its first in line only."""
    tokens: float
    priority: int = 0
    waited_s: float = 0.0
    turn_s: float = 0.0
    """How long its run has been due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether a claim was taken, and what is left."""

    taken: bool
    wait_s: float = 0.0
    """When to ask again; infinity where only the end of another call helps."""
    waiting_for: WaitingFor = "turn"
    requests_left: float | None = None
    tokens_left: float | None = None


class Buckets(Protocol):
    """Keeps buckets and slots by endpoint and model."""

    async def take(self, key: Key, limits: Limits, claim: Claim) -> Answer:
        """Take one request, the claim's tokens and a slot, or nothing at all."""
        ...

    async def settle(self, key: Key, limits: Limits, claim_id: str, *, requests: float, tokens: float) -> Answer:
        """Free the slot and give back so much of what was taken; below 0 takes more, into debt."""
        ...

    async def withdraw(self, key: Key, limits: Limits, by: str) -> None:
        """Nobody of this name queues any longer."""
        ...


class Bucket:
    """A token bucket whose takings may be given back.

    Over any time t, what is taken and not given back is at most rate * t + burst (RFC 2215, 3.6), or the largest single
    taking in place of the burst. Giving back must not break that: had a call taken less at the start, a bucket that was
    full in between would be no fuller now. So for each taking, the least room there was below the burst since then
    is kept, and no more than that is added again.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self.level = rate.burst
        self._rate = rate
        self._at = now
        self._rooms: dict[str, float] = {}
        """By open taking, oldest first: the least room between it and the next."""

    @classmethod
    def restored(cls, rate: Rate, saved: dict[str, Any]) -> "Bucket":
        """The bucket that `saved` tells of."""
        bucket = cls(rate, saved["at"])
        bucket.level = saved["level"]
        bucket._rooms = dict(saved["rooms"])
        return bucket

    def saved(self) -> dict[str, Any]:
        """All that it remembers, plain JSON."""
        return {"level": self.level, "at": self._at, "rooms": self._rooms}

    def holds(self, taking: str) -> bool:
        """Whether it has a taking that is open."""
        return taking in self._rooms

    def refill(self, now: float) -> None:
        """Let time pass; a clock that goes back changes nothing."""
        now = max(now, self._at)
        self.level = min(self._rate.burst, self.level + self._rate.per_s * (now - self._at))
        self._at = now
        if self._rooms:
            last = next(reversed(self._rooms))
            self._rooms[last] = min(self._rooms[last], self._rate.burst - self.level)

    def wait_s(self, amount: float) -> float:
        """Seconds until so much may be taken; what is more than the burst may be once the bucket is full."""
        missing = min(amount, self._rate.burst) - self.level
        return missing / self._rate.per_s if missing > ROUNDING else 0.0

    def take(self, taking: str, amount: float) -> None:
        """Take, into debt where there is less."""
        self.level -= amount
        self._rooms[taking] = self._rate.burst - self.level

    def settle(self, taking: str, amount: float) -> None:
        """Give back so much of a taking, as far as the bound allows; below 0 takes more."""
        names = list(self._rooms)
        since = names.index(taking)
        if amount > 0:
            amount = min(amount, *(self._rooms[name] for name in names[since:]))
            for name in names[since:]:
                self._rooms[name] -= amount
        self.level += amount
        room = self._rooms.pop(taking)
        if since:
            before = names[since - 1]
            self._rooms[before] = min(self._rooms[before], room)


class _State:
    """One endpoint and model."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.requests = Bucket(limits.requests, now) if limits.requests else None
        self.tokens = Bucket(limits.tokens, now) if limits.tokens else None
        self.in_flight: set[str] = set()

    def refill(self, now: float) -> None:
        for bucket in (self.requests, self.tokens):
            if bucket:
                bucket.refill(now)

    def answer(self, *, taken: bool, wait_s: float = 0.0, waiting_for: WaitingFor = "turn") -> Answer:
        return Answer(
            taken=taken,
            wait_s=wait_s,
            waiting_for=waiting_for,
            requests_left=self.requests.level if self.requests else None,
            tokens_left=self.tokens.level if self.tokens else None,
        )


class LocalBuckets:
    """Buckets of this process: nothing here ever waits."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._states: dict[Key, _State] = {}

    async def take(self, key: Key, limits: Limits, claim: Claim) -> Answer:
        """Take one request, the claim's tokens and a slot, or nothing at all."""
        now = self._clock()
        state = self._states.get(key) or self._states.setdefault(key, _State(limits, now))
        state.refill(now)
        if limits.concurrency is not None and len(state.in_flight) >= limits.concurrency:
            return state.answer(taken=False, wait_s=math.inf, waiting_for="concurrency")
        for_requests = state.requests.wait_s(1) if state.requests else 0.0
        for_tokens = state.tokens.wait_s(claim.tokens) if state.tokens else 0.0
        if for_requests or for_tokens:
            waiting_for: WaitingFor = "requests" if for_requests >= for_tokens else "tokens"
            return state.answer(taken=False, wait_s=max(for_requests, for_tokens), waiting_for=waiting_for)
        state.in_flight.add(claim.id)
        if state.requests:
            state.requests.take(claim.id, 1)
        if state.tokens:
            state.tokens.take(claim.id, claim.tokens)
        return state.answer(taken=True)

    async def settle(self, key: Key, limits: Limits, claim_id: str, *, requests: float, tokens: float) -> Answer:
        """Free the slot and give back so much of what was taken; below 0 takes more, into debt."""
        state = self._states[key]
        state.refill(self._clock())
        state.in_flight.remove(claim_id)
        if state.requests:
            state.requests.settle(claim_id, requests)
        if state.tokens:
            state.tokens.settle(claim_id, tokens)
        return state.answer(taken=True)

    async def withdraw(self, key: Key, limits: Limits, by: str) -> None:
        """Do nothing: whoever does not ask is not in the way."""
