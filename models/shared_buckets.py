"""What buckets that processes share have in common, wherever they are kept."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any, ClassVar

from reflexion.models.buckets import Answer, Claim, Key, Limits
from reflexion.models.errors import ModelError

logger = logging.getLogger(__name__)

POLL_S = 0.05
"""How often a process whose first call must wait asks again; refill in that time is not lost, the bucket keeps it."""

HEAD_LEASE_S = 2.0
"""A process that has not asked for so long has lost its place among the processes."""


class SharedBuckets(ABC):
    """Buckets and slots at a server, with the semantics of `buckets`.

    Every process queues by itself and asks for its first call only; of these, the server lets the one go that a single
    queue would have let go. A slot has a lease, renewed while the call lasts: those of a process that died fall free.
    Whoever shares a bucket should have the same limits.
    """

    server: ClassVar[str]
    unreachable: ClassVar[tuple[type[Exception], ...]]
    """What is raised where it gives no answer."""

    def __init__(self, *, lease_s: float) -> None:
        self._lease_s = lease_s
        self._held: dict[str, tuple[Key, Limits]] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[Answer]] = set()

    @abstractmethod
    async def _run(self, key: Key, limits: Limits, what: str, **details: Any) -> Answer:
        """Take, settle, renew or withdraw."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""

    async def take(self, key: Key, limits: Limits, claim: Claim) -> Answer:
        """Take one request, the claim's tokens and a slot, or nothing at all; repeating it takes nothing more.

        Raises:
            ModelError: the server cannot be reached. Nothing is let through then, as others may be using up the limit.
        """
        try:
            answer = await self._run(key, limits, "take", claim=asdict(claim))
        except self.unreachable as error:
            raise ModelError(
                "connection", f"the shared limits in {self.server} cannot be reached: {error!r}"
            ) from error
        if answer.taken:
            self._held[claim.id] = key, limits
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.create_task(self._renew())
        return answer

    async def settle(self, key: Key, limits: Limits, claim_id: str, *, requests: float, tokens: float) -> Answer:
        """Free the slot and give back so much of what was taken; below 0 takes more, into debt.

        Where the server cannot be reached, the call keeps its reply and the lease runs out.
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
        except self.unreachable as error:
            logger.warning(
                "the shared limits in %s cannot be reached, the place in the queue will lapse: %r", self.server, error
            )

    async def _settle(self, key: Key, limits: Limits, claim_id: str, back: dict[str, float]) -> Answer:
        try:
            return await self._run(key, limits, "settle", id=claim_id, back=back)
        except self.unreachable as error:
            logger.warning(
                "the shared limits in %s cannot be reached, what a call took will lapse: %r", self.server, error
            )
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
                except self.unreachable as error:
                    logger.warning(
                        "the shared limits in %s cannot be reached, no lease is renewed: %r", self.server, error
                    )
