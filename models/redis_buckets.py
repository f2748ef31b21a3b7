"""Token buckets and slots that many processes and machines share through Redis, with the semantics of `buckets`."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from reflexion.models.buckets import ROUNDING, Answer, Clock, Key, Limits
from reflexion.models.redis_script import SCRIPT
from reflexion.models.shared_buckets import HEAD_LEASE_S, POLL_S, SharedBuckets

CONNECTIONS = 4
"""Of one process. Redis takes one step at a time; a thousand calls that end at once must not open a thousand."""


class RedisBuckets(SharedBuckets):
    """Buckets and slots in Redis, one key for each endpoint and model. Each step is one script, on its clock."""

    server = "Redis"
    unreachable = (RedisError, OSError, TimeoutError)

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
        super().__init__(lease_s=lease_s)
        self._url = url
        self._prefix = prefix
        self._patience_s = patience_s
        self._clock = clock
        self._redis: Redis | None = None
        self._script: AsyncScript | None = None
        self._connections = asyncio.Semaphore(CONNECTIONS)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those of an earlier one ended with it."""
        self._stop_renewing()
        if self._redis and self._loop is asyncio.get_running_loop():
            await self._redis.aclose()
        self._redis = None

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
