"""Token buckets and slots that many processes and machines share through Redis, with the semantics of `buckets`."""

import asyncio
import json
import logging
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from reflexion.models.buckets import ROUNDING, Answer, Claim, Clock, Key, Limits
from reflexion.models.errors import ModelError
from reflexion.models.redis_script import SCRIPT

logger = logging.getLogger(__name__)

POLL_S = 0.05
"""How often a process whose first call must wait asks again; refill in that time is not lost, the bucket keeps it."""

HEAD_LEASE_S = 2.0
"""A process that has not asked for so long has lost its place among the processes."""

CONNECTIONS = 4
"""Of one process. Redis takes one step at a time; a thousand calls that end at once must not open a thousand."""

_UNREACHABLE = (RedisError, OSError, TimeoutError)


class RedisBuckets:
    """Buckets and slots in Redis, one key for each endpoint and model, on the server's clock.

    Every process queues by itself and asks for its first call only; of these, Redis lets the one go that a single
    queue would have let go. A slot has a lease, renewed while the call lasts: those of a process that died fall free.
    Whoever shares a key should have the same limits.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "reflexion:limits",
        lease_s: float = 30.0,
        patience_s: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        """Share buckets.

        Args:
            url: `redis://[user:password@]host:port/database`.
            prefix: of the keys.
            lease_s: seconds after which what a dead process held counts as used and its slots are free.
            patience_s: seconds after which Redis counts as unreachable.
            clock: replaces the server's clock, for tests.
        """
        self._url = url
        self._prefix = prefix
        self._lease_s = lease_s
        self._patience_s = patience_s
        self._clock = clock
        self._held: dict[str, tuple[Key, Limits]] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[Answer]] = set()
        self._redis: Redis | None = None
        self._script: AsyncScript | None = None
        self._connections = asyncio.Semaphore(CONNECTIONS)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take(self, key: Key, limits: Limits, claim: Claim) -> Answer:
        """Take one request, the claim's tokens and a slot, or nothing at all; repeating it takes nothing more.

        Raises:
            ModelError: Redis cannot be reached. Nothing is let through then, as others may be using up the limit.
        """
        try:
            answer = await self._run(key, limits, "take", claim=asdict(claim))
        except _UNREACHABLE as error:
            raise ModelError("connection", f"the shared limits in Redis cannot be reached: {error!r}") from error
        if answer.taken:
            self._held[claim.id] = key, limits
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.create_task(self._renew())
        return answer

    async def settle(self, key: Key, limits: Limits, claim_id: str, *, requests: float, tokens: float) -> Answer:
        """Free the slot and give back so much of what was taken; below 0 takes more, into debt.

        Where Redis cannot be reached, the call keeps its reply and the lease runs out.
        """
        self._held.pop(claim_id, None)
        if not self._held:
            self._stop_renewing()
        back = {"requests": requests, "tokens": tokens}
        return await self._finished(self._settle(key, limits, claim_id, back))

    async def withdraw(self, key: Key, limits: Limits, by: str) -> None:
        """Nobody of this name queues any longer."""
        try:
            await self._run(key, limits, "withdraw", by=by)
        except _UNREACHABLE as error:
            logger.warning("the shared limits in Redis cannot be reached, the place in the queue will lapse: %r", error)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those of an earlier one ended with it."""
        self._stop_renewing()
        if self._redis and self._loop is asyncio.get_running_loop():
            await self._redis.aclose()
        self._redis = None

    async def _settle(self, key: Key, limits: Limits, claim_id: str, back: dict[str, float]) -> Answer:
        try:
            return await self._run(key, limits, "settle", id=claim_id, back=back)
        except _UNREACHABLE as error:
            logger.warning("the shared limits in Redis cannot be reached, what a call took will lapse: %r", error)
            return Answer(taken=True)

    async def _finished(self, settling: Coroutine[Any, Any, Answer]) -> Answer:
        """Go on to the end even when whoever waits for it is cancelled."""
        task = asyncio.create_task(settling)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return await asyncio.shield(task)

    def _stop_renewing(self) -> None:
        if self._renewing:
            self._renewing.cancel()
        self._renewing = None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            held: dict[tuple[Key, Limits], list[str]] = {}
            for claim_id, shared in self._held.items():
                held.setdefault(shared, []).append(claim_id)
            for (key, limits), ids in held.items():
                try:
                    await self._run(key, limits, "renew", ids=ids)
                except _UNREACHABLE as error:
                    logger.warning("the shared limits in Redis cannot be reached, no lease is renewed: %r", error)

    async def _run(self, key: Key, limits: Limits, what: str, **details: Any) -> Answer:
        rates = {"requests": limits.requests, "tokens": limits.tokens}
        ask = {
            "what": what,
            "now": self._clock() if self._clock else None,
            "rates": {kind: asdict(rate) for kind, rate in rates.items() if rate},
            "concurrency": limits.concurrency or 1e9,
            "ageing_s": limits.ageing_s,
            "lease_s": self._lease_s,
            "head_lease_s": HEAD_LEASE_S,
            "poll_s": POLL_S,
            "rounding": ROUNDING,
            **details,
        }
        name = f"{self._prefix}:{json.dumps(key)}"
        script = self._connected()
        async with self._connections, asyncio.timeout(self._patience_s):
            said: Any = await script(keys=[name], args=[json.dumps(ask)])
        return Answer(**json.loads(said))

    def _connected(self) -> AsyncScript:
        """The script at a client of the running event loop, as connections do not outlive theirs."""
        loop = asyncio.get_running_loop()
        if self._redis is None or self._script is None or self._loop is not loop:
            self._renewing = None
            self._redis, self._loop = Redis.from_url(self._url), loop
            self._script = self._redis.register_script(SCRIPT)
            self._connections = asyncio.Semaphore(CONNECTIONS)
        return self._script
