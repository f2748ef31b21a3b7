"""How many judgements run at once, apart from how many model calls do."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakKeyDictionary


class Gate:
    """Lets a bounded number in, or one alone.

    Args:
        size: how many may be inside at once; by default one for each CPU.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size or _cpus()
        self._places = asyncio.Semaphore(self.size)
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be one of those inside."""
        async with self._places:
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be the only one inside."""
        async with self._alone, AsyncExitStack() as stack:  # one collects places at a time, or two would wait for ever
            for _ in range(self.size):
                await stack.enter_async_context(self._places)
            yield


def _cpus() -> int:
    """Count the CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, Gate] = WeakKeyDictionary()


def gate() -> Gate:
    """Give the gate of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _gates:
        _gates[loop] = Gate()
    return _gates[loop]
