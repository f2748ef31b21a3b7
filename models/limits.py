"""Requests and tokens per minute and calls in flight, kept by letting requests queue."""

import asyncio
import itertools
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reflexion.models.buckets import Answer, Buckets, Claim, Clock, Key, Limits, LocalBuckets, Rate, WaitingFor
from reflexion.models.errors import ModelError
from reflexion.models.exchange import Exchange
from reflexion.models.meter import DeadlineExceeded
from reflexion.models.queueing import FairQueue, Waiter

__all__ = ["LimitState", "LimitWaitExceeded", "Limits", "RateLimit"]

_LONGEST_NAP_S = 3600.0
"""Timers of infinity are not to be trusted."""


class LimitWaitExceeded(ModelError):  # noqa: N818 - the name says it
    """A call queued for longer than `Limits.max_wait_s`; it was not sent."""

    def __init__(self, key: Key, waiting_for: WaitingFor, waited_s: float, limits: Limits, queued: int) -> None:
        super().__init__(
            "rate_limit",
            f"waited {waited_s:.1f} s for {_named(waiting_for, limits)} of {' '.join(filter(None, key))}, {queued} more "
            "calls queued, and gave up unsent; raise max_wait_s or the limit, or run fewer at once",
        )
        self.key = key
        self.waiting_for: WaitingFor = waiting_for
        self.waited_s = waited_s
        self.limits = limits

    @property
    def retryable(self) -> bool:
        """False: it has waited for as long as the settings allow."""
        return False


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


class _Lane:
    """One endpoint and model."""

    def __init__(self, ageing_s: float) -> None:
        self.queue = FairQueue(ageing_s)
        self.in_flight = 0
        self.next_expiry = float("inf")
        """Nothing in the queue expires before."""
        self.pump: asyncio.Task[None] | None = None
        self.sleeper: asyncio.Future[None] | None = None
        self.changed = False
        self.waiting_for: WaitingFor = "turn"
        """Why the first in line was last refused."""
        self.last: Answer | None = None
        self.last_at = 0.0

    def wake(self) -> None:
        self.changed = True
        if self.sleeper:
            self.sleeper.cancel()


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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Keep `limits` for every endpoint and model apart, in this process or in a shared `backend`."""
        self._limits = limits
        self._buckets: Buckets = backend or LocalBuckets(clock)
        self._clock = clock
        self._sleep = sleep
        self._lanes: dict[Key, _Lane] = {}
        self._name = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def around(self, exchange: Exchange) -> AsyncIterator[None]:
        """Queue until the request may be sent, and settle what it took when it has ended.

        Raises:
            LimitWaitExceeded: it queued for longer than `max_wait_s`.
            DeadlineExceeded: the exchange's deadline came first.
            ModelError: the shared buckets cannot be reached.
        """
        key = exchange.key
        lane = self._lanes.get(key) or self._lanes.setdefault(key, _Lane(self._limits.ageing_s))
        waiter = self._waiter(exchange)
        await self._admitted(key, lane, waiter)
        try:
            yield
        finally:
            await self._settle(key, lane, waiter, exchange)

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

    def _waiter(self, exchange: Exchange) -> Waiter:
        now = self._clock()
        expires = now + self._limits.max_wait_s
        if exchange.deadline is not None:
            expires = min(expires, now + exchange.deadline - exchange.clock())
        return Waiter(
            id=f"{self._by}-{next(self._numbers)}",
            run_id=exchange.run_id,
            priority=exchange.priority,
            tokens=exchange.prompt_tokens + exchange.reply_tokens,
            arrived=now,
            expires=expires,
            granted=asyncio.get_running_loop().create_future(),
        )

    @property
    def _by(self) -> str:
        """This guard's name among all processes, also after a fork."""
        return f"{self._name}.{os.getpid()}"

    async def _admitted(self, key: Key, lane: _Lane, waiter: Waiter) -> None:
        lane.queue.push(waiter)
        lane.next_expiry = min(lane.next_expiry, waiter.expires)
        lane.wake()
        if lane.pump is None or lane.pump.done() or lane.pump.get_loop() is not waiter.granted.get_loop():
            lane.pump = asyncio.create_task(self._pump(key, lane))
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if lane.queue.remove(waiter):
                lane.wake()
            elif waiter.granted.done() and not waiter.granted.cancelled() and not waiter.granted.exception():
                await self._settle(key, lane, waiter, None)
            raise

    async def _pump(self, key: Key, lane: _Lane) -> None:
        """Let waiting calls through until none is left."""
        taken = True
        while True:
            now = self._clock()
            if now >= lane.next_expiry:
                self._expire(key, lane, now)
            waiter = lane.queue.head(now)
            if waiter is None and taken:
                return
            if waiter is None:  # calls may come while the buckets are told
                taken = True
                await self._buckets.withdraw(key, self._limits, self._by)
                continue
            lane.changed = False
            try:
                answer = await self._buckets.take(key, self._limits, self._claim(lane, waiter, now))
            except Exception as error:  # noqa: BLE001 - the waiting call raises it
                lane.queue.remove(waiter)
                if not waiter.granted.done():
                    waiter.granted.set_exception(error)
                continue
            lane.last, lane.last_at = answer, now
            taken = answer.taken
            if taken:
                await self._let_through(key, lane, waiter)
                continue
            lane.waiting_for = answer.waiting_for
            if not lane.changed:
                await self._nap(lane, min(answer.wait_s, lane.next_expiry - now, _LONGEST_NAP_S))

    def _claim(self, lane: _Lane, waiter: Waiter, now: float) -> Claim:
        return Claim(
            id=waiter.id,
            by=self._by,
            tokens=waiter.tokens,
            priority=waiter.priority,
            waited_s=now - waiter.arrived,
            turn_s=now - lane.queue.due_since(waiter),
        )

    async def _let_through(self, key: Key, lane: _Lane, waiter: Waiter) -> None:
        lane.in_flight += 1
        if waiter.granted.done():  # cancelled while the buckets were asked
            lane.queue.remove(waiter)
            await self._settle(key, lane, waiter, None)
        else:
            lane.queue.serve(waiter, self._clock())
            waiter.granted.set_result(None)

    async def _nap(self, lane: _Lane, seconds: float) -> None:
        """Sleep, unless the queue or what is taken changes."""
        lane.sleeper = asyncio.ensure_future(self._sleep(max(seconds, 0)))
        try:
            await asyncio.wait([lane.sleeper])
            if not lane.sleeper.cancelled():
                lane.sleeper.result()
        finally:
            lane.sleeper.cancel()
            lane.sleeper = None

    def _expire(self, key: Key, lane: _Lane, now: float) -> None:
        for waiter in [w for w in lane.queue if w.expires <= now]:
            lane.queue.remove(waiter)
            if waiter.granted.done():
                continue
            waited_s = now - waiter.arrived
            error: Exception = LimitWaitExceeded(key, lane.waiting_for, waited_s, self._limits, len(lane.queue))
            if waiter.expires < waiter.arrived + self._limits.max_wait_s:
                error = DeadlineExceeded(f"no time left to queue: {error}")
            waiter.granted.set_exception(error)
        lane.next_expiry = min((w.expires for w in lane.queue), default=float("inf"))

    async def _settle(self, key: Key, lane: _Lane, waiter: Waiter, exchange: Exchange | None) -> None:
        """Correct what was taken by what was used; without an exchange or its ledger line nothing was."""
        call = exchange.call if exchange else None
        used = call["prompt_tokens"] + call["completion_tokens"] if call else 0
        lane.in_flight -= 1
        lane.last = await self._buckets.settle(
            key, self._limits, waiter.id, requests=0 if call else 1, tokens=waiter.tokens - used
        )
        lane.last_at = self._clock()
        lane.wake()


def _named(waiting_for: WaitingFor, limits: Limits) -> str:
    """What a call waits for, with the limit."""
    match waiting_for:
        case "requests":
            return f"a request of {limits.requests_per_minute:g} per minute"
        case "tokens":
            return f"tokens of {limits.tokens_per_minute:g} per minute"
        case "concurrency":
            return f"one of {limits.concurrency} slots"
        case "turn":
            return "its turn"


def _refilled(rate: Rate | None, left: float | None, seconds: float) -> float | None:
    return None if rate is None or left is None else min(rate.burst, left + rate.per_s * seconds)
