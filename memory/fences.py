"""Epochs of threads in PostgreSQL, which keep a worker that was given up for dead from writing when it wakes."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool

from reflexion.memory.locks import ThreadLocks
from reflexion.memory.postgres_sql import scalar
from reflexion.models.fence import Fence, Fenced

Pool = AsyncConnectionPool[AsyncConnection[DictRow]]

STUCK_S: Final = 5.0
"""A write that holds a thread for so many seconds is a stopped worker's."""
_REFUSED: Final = "RF001"
"""SQLSTATE of our own."""


class PostgresFences:
    """Hands threads to workers. Whoever takes a thread has it, whatever the worker before believes."""

    def __init__(self, pool: Pool, locks: ThreadLocks) -> None:
        """Remember the locks, which workers share with each other, and not with runs that have no fence."""
        self._pool = pool
        self._locks = locks

    async def setup(self) -> None:
        """Create what is missing."""
        async with self._pool.connection() as connection:
            # What is there needs no right to create anything.
            if not await scalar(connection, "SELECT to_regproc('reflexion_fence_holds') IS NOT NULL"):
                await connection.execute(_TABLE)
                await connection.execute(_FUNCTION)

    @asynccontextmanager
    async def hold(self, thread_id: str, *, wait_s: float = 0.0) -> AsyncIterator[Fence]:
        """Take the thread from whichever worker had it.

        Raises:
            ThreadBusy: a run without a fence holds it, after `wait_s` seconds still.
        """
        async with self._locks.hold(thread_id, wait_s=wait_s):
            epoch = await self._take(thread_id)
            yield Fence(thread_id, epoch, partial(self._check, thread_id, epoch))

    async def _take(self, thread_id: str) -> int:
        """The thread's new epoch."""
        async with self._pool.connection() as connection:
            row = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
            taking = asyncio.create_task(_epoch(connection, thread_id))
            try:
                while not (await asyncio.wait([taking], timeout=STUCK_S))[0]:
                    async with self._pool.connection() as other:
                        await other.execute(_END_STUCK, row)
                return await taking
            finally:
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)

    async def _check(self, thread_id: str, epoch: int) -> None:
        async with self._pool.connection() as connection, while_held(connection, [Fence(thread_id, epoch, _nothing)]):
            pass


@asynccontextmanager
async def while_held(connection: AsyncConnection[Any], fences: Collection[Fence]) -> AsyncIterator[None]:
    """A transaction during which nobody takes the threads of these fences; without fences there is none.

    Raises:
        Fenced: one of them was taken before, and nothing is written.
    """
    if not fences:
        yield
        return
    try:
        # In a pipeline the check and the end cost no round trips of their own.
        async with connection.pipeline(), connection.transaction():
            for fence in fences:
                await connection.execute(_HOLDS, [_key(fence.thread_id), fence.epoch])
            yield
    except psycopg.Error as error:
        if error.sqlstate != _REFUSED:
            raise
        first = next(iter(fences))
        raise Fenced(first.thread_id, first.epoch) from None


async def _epoch(connection: AsyncConnection[DictRow], thread_id: str) -> int:
    row = await (await connection.execute(_TAKE, [_key(thread_id)])).fetchone()
    assert row is not None
    return int(row["epoch"])


async def _nothing() -> None:
    pass


def _key(thread_id: str) -> bytes:
    # PostgreSQL's texts take neither NUL nor a lone surrogate.
    return thread_id.encode("utf-8", "surrogatepass")


_TABLE: Final = "CREATE TABLE IF NOT EXISTS reflexion_fence (thread bytea PRIMARY KEY, epoch bigint NOT NULL)"
_TAKE: Final = """
INSERT INTO reflexion_fence VALUES (%s, 1)
ON CONFLICT (thread) DO UPDATE SET epoch = reflexion_fence.epoch + 1 RETURNING epoch
"""
# FOR SHARE: who takes the thread waits until the write is committed, and sees it.
# A worker that stands still within a transaction would keep its thread for ever. Whoever waits for its own client in
# the middle of a write, for as long as that, does stand still; its transaction is undone.
_END_STUCK: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = ANY(pg_blocking_pids(%(pid)s)) AND wait_event = 'ClientRead'
"""
_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION reflexion_fence_holds(taken bytea, mine bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM reflexion_fence WHERE thread = taken AND epoch = mine FOR SHARE;
    IF NOT FOUND THEN RAISE EXCEPTION 'taken over' USING ERRCODE = '{_REFUSED}'; END IF;
END $$
"""
_HOLDS: Final = "SELECT reflexion_fence_holds(%s, %s)"
