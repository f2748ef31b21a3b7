"""Requests and tokens per minute and calls in flight, kept by letting requests queue."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reflexion.models.buckets import Buckets, Clock, Key, Limits, LocalBuckets, Rate
from reflexion.models.exchange import Exchange
from reflexion.models.lane import Lane, LimitWaitExceeded, Sleep

if TYPE_CHECKING:
    from reflexion.models.redis_buckets import RedisBuckets

__all__ = ["LimitState", "LimitWaitExceeded", "Limits", "RateLimit", "redis_backend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """How one endpoint and model stand. What is left is as of the last answer of the buckets, and the refill since."""

    endpoint: str
    model: str
    requests_left: float | None
    """Below 0 is debt; None without a limit."""
    tokens_left: float | None
    queued: int
    """Calls of this process that wait."""
    in_flight: int
    """Calls of this process that have been let through and have not ended."""


class RateLimit:
    """A guard that lets each request wait until its endpoint and model may be asked.

    A call takes one request, and its prompt's and reply's tokens as reserved; when it has ended, the tokens that the
    ledger shows correct that. A call that was never sent gives all back. One event loop at a time.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        backend: Buckets | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Keep `limits` for every endpoint and model apart, in this process or in a shared `backend`."""
        self._limits = limits
        self._buckets: Buckets = backend or LocalBuckets(clock)
        self._clock = clock
        self._sleep = sleep
        self._lanes: dict[Key, Lane] = {}

    @asynccontextmanager
    async def around(self, exchange: Exchange) -> AsyncIterator[None]:
        """Queue until the request may be sent, and settle what it took when it has ended.

        Raises:
            LimitWaitExceeded: it queued for longer than `max_wait_s`.
            DeadlineExceeded: the exchange's deadline came first.
            ModelError: the shared buckets cannot be reached.
        """
        lane = self._lane(exchange.key)
        waiter = await lane.admitted(exchange)
        try:
            yield
        finally:
            call = exchange.call
            used = call["prompt_tokens"] + call["completion_tokens"] if call else 0
            await lane.settle(waiter, requests=0 if call else 1, tokens=waiter.tokens - used)

    def state(self) -> list[LimitState]:
        """How every endpoint and model that has been asked stands."""
        now = self._clock()
        return [
            LimitState(
                endpoint=endpoint,
                model=model,
                requests_left=_refilled(self._limits.requests, lane.last.requests_left, now - lane.last_at),
                tokens_left=_refilled(self._limits.tokens, lane.last.tokens_left, now - lane.last_at),
                queued=len(lane.queue),
                in_flight=lane.in_flight,
            )
            for (endpoint, model), lane in self._lanes.items()
            if lane.last
        ]

    def _lane(self, key: Key) -> Lane:
        if key not in self._lanes:
            self._lanes[key] = Lane(key, self._limits, self._buckets, self._clock, self._sleep)
        return self._lanes[key]


def redis_backend(url: str) -> "RedisBuckets":
    """Buckets that all processes share that name the same server: `redis://[user:password@]host:port/database`.

    `RedisBuckets` itself takes more settings. It is the caller's to close: `await backend.aclose()`.

    Raises:
        ImportError: the extra `redis` is not installed.
    """
    try:
        from reflexion.models.redis_buckets import RedisBuckets  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        raise ImportError('shared limits need Redis\'s client: pip install "reflexion-graph[redis]"') from error
    return RedisBuckets(url)


def _refilled(rate: Rate | None, left: float | None, seconds: float) -> float | None:
    return None if rate is None or left is None else min(rate.burst, left + rate.per_s * seconds)
