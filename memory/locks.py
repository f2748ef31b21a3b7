"""One run at a time on a thread: LangGraph locks nothing, and of concurrent runs all but one are lost."""

import asyncio
import contextlib
import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from filelock import FileLock, Timeout

T = TypeVar("T")

POLL_S: Final = 0.05
"""How often a waiting run tries again, in seconds."""


class ThreadBusy(RuntimeError):  # noqa: N818 - a state that callers expect, not a fault
    """Another run holds the thread."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(
            f"thread {thread_id!r} is busy: another run is working on it; wait for it (wait_s), or use another thread"
        )
        self.thread_id = thread_id


class ThreadLocks(Protocol):
    """Whoever works on a thread holds its lock meanwhile."""

    def hold(self, thread_id: str, *, wait_s: float = 0.0) -> AbstractAsyncContextManager[None]:
        """Hold the thread's lock inside the `async with`; raises `ThreadBusy` after `wait_s` seconds."""
        ...


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end even when the caller is cancelled meanwhile; the cancellation follows then.

    For what must not stop half-way, such as a transaction between its first statement and the commit.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # marks it as seen: the caller is cancelled and hears nothing else
        raise


class PollingLocks(ABC):
    """Takes a lock by trying again and again, so that a cancelled wait leaves nothing behind in a queue."""

    @abstractmethod
    async def _try_take(self, thread_id: str) -> bool:
        """Take the lock and return True, or return False at once where somebody else has it."""

    @abstractmethod
    async def _give_back(self, thread_id: str) -> None:
        """Free a lock that was taken."""

    @asynccontextmanager
    async def hold(self, thread_id: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
        """Hold the thread's lock inside the `async with`; raises `ThreadBusy` after `wait_s` seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        taken = False

        async def take() -> None:
            # Noted rather than returned: a cancelled caller gets no result, yet must know what to give back.
            nonlocal taken
            taken = await self._try_take(thread_id)

        try:
            await uninterrupted(take())
            while not taken:
                left_s = deadline - clock()
                if left_s <= 0:
                    raise ThreadBusy(thread_id)
                await asyncio.sleep(min(POLL_S, left_s))
                await uninterrupted(take())
            yield
        finally:
            if taken:
                await uninterrupted(self._give_back(thread_id))


class MemoryLocks(PollingLocks):
    """Locks that live and die with this object, for a database that does the same."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._guard = threading.Lock()

    async def _try_take(self, thread_id: str) -> bool:
        with self._guard:
            if thread_id in self._held:
                return False
            self._held.add(thread_id)
            return True

    async def _give_back(self, thread_id: str) -> None:
        with self._guard:
            self._held.discard(thread_id)


class FileLocks(PollingLocks):
    """One operating system lock per thread, on a file in `folder`.

    The kernel frees it when the process ends, so a killed run can be resumed at once. Its file
    is removed when the lock is given back; a killed process leaves one behind until the thread is used again.
    Each held lock costs one open file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, FileLock] = {}

    async def _try_take(self, thread_id: str) -> bool:
        name = hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        lock = FileLock(self._folder / f"{name}.lock", mode=0o600, thread_local=False)
        if not await asyncio.to_thread(_acquire, lock):
            return False
        self._held[thread_id] = lock
        return True

    async def _give_back(self, thread_id: str) -> None:
        await asyncio.to_thread(_remove, self._held.pop(thread_id))


def _acquire(lock: FileLock) -> bool:
    Path(lock.lock_file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    return True


def _remove(lock: FileLock) -> None:
    # Removed while still held: whoever opened it before and locks it after sees an inode without a name,
    # which filelock does not take for the lock (before 4.0 it did). Windows removes no open file: it stays, empty.
    with contextlib.suppress(OSError):
        Path(lock.lock_file).unlink()
    lock.release()
