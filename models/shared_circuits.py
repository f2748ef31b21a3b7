"""What circuits that processes share have in common, wherever they are kept."""

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from reflexion.models.breaker import LocalCircuits, Step
from reflexion.models.circuit import BreakerPolicy, Circuit, CircuitState, Key, Verdict

logger = logging.getLogger(__name__)

_APART_S = 5.0
"""How long a server is left alone after it gave no answer."""


class SharedCircuits(ABC):
    """Circuits at a server, with the semantics of `circuit.Circuit`.

    Whoever holds a probe renews its lease while the probe lasts; when the process dies, the lease runs out and another
    process probes. While the server gives no answer, each process keeps circuits of its own, and how those ended
    that had entered at the server is lost.
    """

    server: ClassVar[str]
    unreachable: ClassVar[tuple[type[Exception], ...]]
    """What is raised where it gives no answer."""

    def __init__(self, policy: BreakerPolicy, *, lease_s: float, patience_s: float | None) -> None:
        self._lease_s = lease_s
        self._patience_s = patience_s
        self._apart_until = -math.inf
        self._local = LocalCircuits(policy)
        self._leases: dict[tuple[Key, int], asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[Step]] = set()

    @abstractmethod
    async def _step(self, key: Key, what: str, epoch: int = 0, verdict: Verdict = "nothing", why: str = "") -> Step:
        """Enter, leave, renew or look."""

    @abstractmethod
    async def states(self) -> list[CircuitState]:
        """All circuits at the server, by endpoint and model; raises what is `unreachable`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""

    async def enter(self, key: Key) -> Step:
        """Ask to send a request. A negative epoch is one of this process's own circuits."""
        try:
            step = await self._step(key, "enter")
        except self.unreachable:
            step = await self._local.enter(key)
            return replace(step, epoch=None if step.epoch is None else _swap(step.epoch))
        if step.epoch is not None and step.after.state == "half_open":
            self._leases[key, step.epoch] = asyncio.create_task(self._renew(key, step.epoch))
        return step

    async def leave(self, key: Key, epoch: int, verdict: Verdict, why: str) -> Step:
        """Tell how an admitted request ended."""
        leaving = asyncio.create_task(self._leave(key, epoch, verdict, why))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return await asyncio.shield(leaving)

    async def _leave(self, key: Key, epoch: int, verdict: Verdict, why: str) -> Step:
        if epoch < 0:
            return await self._local.leave(key, _swap(epoch), verdict, why)
        if lease := self._leases.pop((key, epoch), None):
            lease.cancel()
        try:
            return await self._step(key, "leave", epoch, verdict, why)
        except self.unreachable:  # nothing is known to have changed; a probe's lease runs out
            return Step("closed", Circuit(since=0.0).seen(key, 0.0))

    async def _renew(self, key: Key, epoch: int) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(*self.unreachable):
                await self._step(key, "renew", epoch)

    async def _in_time(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What the server answers, unless it gave no answer a moment ago."""
        if time.monotonic() < self._apart_until:
            raise TimeoutError(f"{self.server} gave no answer a moment ago")
        try:
            async with asyncio.timeout(self._patience_s):
                return await ask()
        except self.unreachable as error:
            if time.monotonic() >= self._apart_until:
                logger.warning(
                    "circuits are not shared for the next %g s, %s gave no answer: %r", _APART_S, self.server, error
                )
            self._apart_until = time.monotonic() + _APART_S
            raise


def _swap(epoch: int) -> int:
    """Between the epochs of own circuits, from 0, and the negative numbers that tell them from those at the server."""
    return -1 - epoch
