"""The threads of a database: which there are, how large they are, and how they go."""

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from reflexion.memory.locks import ThreadBusy, ThreadLocks


@dataclass(frozen=True, slots=True)
class Thread:
    """What a thread holds in the database."""

    id: str
    last_checkpoint: str
    checkpoints: int
    """One for each step of its runs."""
    bytes: int
    """Of its checkpoints, indexes aside."""

    @property
    def last_used_at(self) -> float | None:
        """When its last checkpoint was written, in seconds since 1970; None where its id does not tell."""
        return _written_at(self.last_checkpoint)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What became of the threads that were old enough."""

    threads: int
    """Deleted, or cut down to their last checkpoint."""
    busy: int
    """Left as they are, as a run works on them."""


class Threads:
    """The threads of an open database. None is touched while a run holds it."""

    def __init__(
        self,
        checkpointer: BaseCheckpointSaver[Any],
        locks: ThreadLocks,
        listed: Callable[[], Awaitable[list[Thread]]],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._checkpointer = checkpointer
        self._locks = locks
        self._listed = listed
        self._now = now

    async def all(self) -> list[Thread]:
        """Every thread, the one that was used last first."""
        return sorted(await self._listed(), key=lambda thread: thread.last_used_at or 0.0, reverse=True)

    async def delete(self, thread_id: str) -> None:
        """Delete a thread with its reflections and its history. Lessons and the ledger are no part of it.

        Raises:
            ThreadBusy: a run works on it.
        """
        async with self._locks.hold(thread_id):
            await self._checkpointer.adelete_thread(thread_id)

    async def prune(self, *, older_than_s: float, keep_last: bool = False) -> Pruned:
        """Delete the threads that have not been used for so many seconds, those that wait for a review too.

        Args:
            older_than_s: seconds since the last step.
            keep_last: keep of each its last checkpoint. It remembers what it did and can be resumed; what is gone is
                the way there, for time travel. Not for `memory://`.
        """
        oldest, pruned, busy = self._now() - older_than_s, 0, 0
        for thread in await self.all():
            if thread.last_used_at is None or thread.last_used_at > oldest or (keep_last and thread.checkpoints == 1):
                continue
            try:
                async with self._locks.hold(thread.id):
                    strategy = "keep_latest" if keep_last else "delete"
                    await self._checkpointer.aprune([thread.id], strategy=strategy)
                pruned += 1
            except ThreadBusy:
                busy += 1
        return Pruned(pruned, busy)


_GREGORIAN_S = 12_219_292_800
"""From the beginning of the Gregorian calendar, where UUIDs begin to count, to 1970."""


def _written_at(checkpoint_id: str) -> float | None:
    """The time in a UUID of version 6 (RFC 9562), which LangGraph's ids of checkpoints are."""
    try:
        number = uuid.UUID(checkpoint_id).int
    except ValueError:
        return None
    if (number >> 76) & 0xF != 6:
        return None
    ticks = (number >> 80) << 12 | (number >> 64) & 0xFFF
    return ticks / 1e7 - _GREGORIAN_S
