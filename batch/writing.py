"""Writes records as they come: those that finish while others are written share one write."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from reflexion.batch.journal import Due, Journal
from reflexion.batch.records import Record

logger = logging.getLogger(__name__)


class Writer:
    """One write at a time, in a thread; each caller goes on when its record is safe."""

    def __init__(self, journal: Journal, forget: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """Write to a journal, and then forget the threads of what has ended."""
        self._journal = journal
        self._forget = forget
        self._waiting: list[tuple[Record, Due]] = []
        self._written: asyncio.Future[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._over: list[str] = []
        self._forgetting: asyncio.Task[None] | None = None

    async def add(self, finished: Sequence[tuple[Record, Due]]) -> None:
        """Write records. It is done to the end even when the caller is cancelled.

        Raises:
            BatchError: they cannot be written.
        """
        self._waiting += finished
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
        written = self._written
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await asyncio.shield(written)

    async def aclose(self) -> None:
        """Finish what was asked for."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._forgetting is not None:
            await asyncio.wait([self._forgetting])

    async def _write(self) -> None:
        while self._written is not None:
            some, self._waiting = self._waiting, []
            written, self._written = self._written, None
            try:
                await asyncio.to_thread(self._journal.add, some)
            except Exception as error:  # noqa: BLE001 - handed to whoever asked
                written.set_exception(error)
                written.exception()  # seen, also where nobody waits any more
                continue
            written.set_result(None)
            self._over += [record.result["thread_id"] for record, _ in some if record.ended and record.result]
            if self._forgetting is None or self._forgetting.done():
                self._forgetting = asyncio.create_task(self._forget_all())

    async def _forget_all(self) -> None:
        while self._over:
            threads, self._over = self._over, []
            try:
                await self._forget(threads)
            except Exception:
                logger.warning("checkpoints of %d finished tasks could not be deleted", len(threads), exc_info=True)
