"""The queue in front of one endpoint and model."""

import asyncio
import itertools
import os
import uuid
from collections.abc import Awaitable, Callable

from reflexion.models.buckets import Answer, Buckets, Claim, Clock, Key, Limits, WaitingFor
from reflexion.models.ends import DeadlineExceeded
from reflexion.models.errors import ModelError
from reflexion.models.exchange import Exchange
from reflexion.models.queueing import FairQueue, Waiter

Sleep = Callable[[float], Awaitable[None]]

_LONGEST_NAP_S = 3600.0
"""Timers of infinity are not to be trusted."""


class LimitWaitExceeded(ModelError):  # noqa: N818 - the name says it
    """A call queued for longer than `Limits.max_wait_s`; it was not sent."""

    def __init__(self, key: Key, waiting_for: WaitingFor, waited_s: float, limits: Limits, queued: int) -> None:
        asked = " ".join(filter(None, key))
        super().__init__(
            "rate_limit",
            f"waited {waited_s:.1f} s for {_named(waiting_for, limits)} of {asked}, with {queued} more calls queued, "
            "and gave up unsent; raise max_wait_s or the limit, or run fewer at once",
        )
        self.key = key
        self.waiting_for: WaitingFor = waiting_for
        self.waited_s = waited_s
        self.limits = limits

    @property
    def retryable(self) -> bool:
        """False: it has waited for as long as the settings allow."""
        return False


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


class Lane:
    """Lets the calls to one endpoint and model through, one after the other, as the buckets allow.

    One task asks the buckets for the first in the queue and sleeps while they refuse. It ends when nobody waits.
    """

    def __init__(self, key: Key, limits: Limits, buckets: Buckets, clock: Clock, sleep: Sleep) -> None:
        self.queue = FairQueue(limits.ageing_s)
        self.in_flight = 0
        self.last: Answer | None = None
        """What the buckets said last, and when."""
        self.last_at = 0.0
        self._key = key
        self._limits = limits
        self._buckets = buckets
        self._clock = clock
        self._sleep = sleep
        self._name = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)
        self._pump: asyncio.Task[None] | None = None
        self._sleeper: asyncio.Future[None] | None = None
        self._changed = False
        self._next_expiry = float("inf")
        """Nothing in the queue expires before."""
        self._waiting_for: WaitingFor = "turn"
        """Why the first in the queue was last refused."""

    async def admitted(self, exchange: Exchange) -> Waiter:
        """Wait until the exchange may go.

        Raises:
            LimitWaitExceeded, DeadlineExceeded, ModelError: as `RateLimit.around` does.
        """
        waiter = self._waiter(exchange)
        self.queue.push(waiter)
        self._next_expiry = min(self._next_expiry, waiter.expires)
        self._wake()
        if self._pump is None or self._pump.done() or self._pump.get_loop() is not waiter.granted.get_loop():
            self._pump = asyncio.create_task(self._let_all_through())
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if self.queue.remove(waiter):
                self._wake()
            elif waiter.granted.done() and not waiter.granted.cancelled() and not waiter.granted.exception():
                await self.settle(waiter, requests=1, tokens=waiter.tokens)
            raise
        return waiter

    async def settle(self, waiter: Waiter, *, requests: float, tokens: float) -> None:
        """End a call that went, and give back so much of what it took; below 0 takes more."""
        self.in_flight -= 1
        answer = await self._buckets.settle(self._key, self._limits, waiter.id, requests=requests, tokens=tokens)
        self.last, self.last_at = answer, self._clock()
        self._wake()

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
        """This lane's name among those of all processes, also after a fork."""
        return f"{self._name}.{os.getpid()}"

    def _wake(self) -> None:
        self._changed = True
        if self._sleeper:
            self._sleeper.cancel()

    async def _let_all_through(self) -> None:
        refused = False
        while True:
            now = self._clock()
            if now >= self._next_expiry:
                self._expire(now)
            waiter = self.queue.head(now)
            if waiter is None and refused:  # calls may come while the buckets are told
                refused = False
                await self._buckets.withdraw(self._key, self._limits, self._by)
                continue
            if waiter is None:
                return
            self._changed = False
            try:
                answer = await self._buckets.take(self._key, self._limits, self._claim(waiter, now))
            except Exception as error:  # noqa: BLE001 - the waiting call raises it
                self.queue.remove(waiter)
                if not waiter.granted.done():
                    waiter.granted.set_exception(error)
                continue
            self.last, self.last_at = answer, now
            refused = not answer.taken
            if answer.taken:
                await self._let_through(waiter)
                continue
            self._waiting_for = answer.waiting_for
            if not self._changed:
                await self._nap(min(answer.wait_s, self._next_expiry - now, _LONGEST_NAP_S))

    def _claim(self, waiter: Waiter, now: float) -> Claim:
        return Claim(
            id=waiter.id,
            by=self._by,
            tokens=waiter.tokens,
            priority=waiter.priority,
            waited_s=now - waiter.arrived,
            turn_s=now - self.queue.due_since(waiter),
        )

    async def _let_through(self, waiter: Waiter) -> None:
        self.in_flight += 1
        if waiter.granted.done():  # cancelled while the buckets were asked
            self.queue.remove(waiter)
            await self.settle(waiter, requests=1, tokens=waiter.tokens)
        else:
            self.queue.serve(waiter, self._clock())
            waiter.granted.set_result(None)

    async def _nap(self, seconds: float) -> None:
        """Sleep, unless the queue or what is taken changes."""
        self._sleeper = asyncio.ensure_future(self._sleep(max(seconds, 0)))
        try:
            await asyncio.wait([self._sleeper])
            if not self._sleeper.cancelled():
                self._sleeper.result()
        finally:
            self._sleeper.cancel()
            self._sleeper = None

    def _expire(self, now: float) -> None:
        for waiter in [w for w in self.queue if w.expires <= now]:
            self.queue.remove(waiter)
            if waiter.granted.done():
                continue
            waited_s = now - waiter.arrived
            error: Exception = LimitWaitExceeded(self._key, self._waiting_for, waited_s, self._limits, len(self.queue))
            if waiter.expires < waiter.arrived + self._limits.max_wait_s:
                error = DeadlineExceeded(f"no time left to queue: {error}")
            waiter.granted.set_exception(error)
        self._next_expiry = min((w.expires for w in self.queue), default=float("inf"))
