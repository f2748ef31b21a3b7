"""Time that passes only when nothing else can happen."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable


class VirtualTime:
    """A clock, and a sleep that takes no time outside of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        awake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), awake))
        await awake

    async def sleep_until(self, when: float) -> None:
        await self.sleep(max(0.0, when - self.now))

    async def run(self, *work: Awaitable[object]) -> list[object]:
        """Run it all to its end; exceptions are results."""
        done = asyncio.gather(*work, return_exceptions=True)
        while not done.done():
            await self._until_idle()
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if done.done():
                break
            assert self._sleepers, "nothing can happen any more: somebody waits for ever"
            self.now, _, awake = heapq.heappop(self._sleepers)
            awake.set_result(None)
        return done.result()

    async def _until_idle(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        while loop._ready:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
