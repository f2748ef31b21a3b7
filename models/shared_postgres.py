"""A PostgreSQL database as workers share counters through it: a few connections, tables made when first needed."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reflexion.models.errors import ModelError

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

CONNECTIONS = 1
"""Of one process and kind of counter: steps are short, and a database has few connections for many workers."""


class SharedPostgres:
    """Runs single statements, each a transaction of its own: a process that is stopped in mid-step holds no lock.

    Tables are created under a lock, by whichever worker comes first.
    """

    def __init__(self, url: str, ddl: Sequence[str], *, patience_s: float = 10.0) -> None:
        """Remember where the database is.

        Args:
            url: `postgresql://user:password@host:port/database`.
            ddl: statements that create what is missing.
            patience_s: seconds after which the database counts as unreachable.
        """
        self._url = url
        self._ddl = ddl
        self._patience_s = patience_s
        self._pool: AsyncConnectionPool[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = asyncio.Semaphore(CONNECTIONS)

    async def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement brings.

        Raises:
            ModelError: of kind `connection`: the database cannot be reached, or refuses.
        """
        import psycopg  # noqa: PLC0415 - takes long to import
        from psycopg_pool import PoolTimeout  # noqa: PLC0415

        try:
            # Whoever waits for his turn is not kept waiting by the database.
            async with self._turns_here(), asyncio.timeout(self._patience_s):
                pool = await self._opened()
                async with pool.connection() as connection:
                    cursor = await connection.execute(sql.encode(), parameters)
                    return await cursor.fetchall() if cursor.description else []
        except (psycopg.Error, PoolTimeout, OSError, TimeoutError) as error:
            reason = type(error).__name__ if isinstance(error, TimeoutError) else " ".join(str(error).split())
            raise ModelError("connection", f"what workers share in PostgreSQL cannot be reached: {reason}") from error

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those of an earlier one ended with it."""
        if self._pool and self._loop is asyncio.get_running_loop():
            await self._pool.close()
        self._pool = None

    async def _opened(self) -> "AsyncConnectionPool[Any]":
        if self._pool is None:
            self._pool = await self._open()
        return self._pool

    def _turns_here(self) -> asyncio.Semaphore:
        """Turns in the running event loop; connections do not outlive theirs."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._pool, self._loop, self._turns = None, loop, asyncio.Semaphore(CONNECTIONS)
        return self._turns

    async def _open(self) -> "AsyncConnectionPool[Any]":
        from psycopg import AsyncConnection  # noqa: PLC0415
        from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415

        # A single one first: it says at once why it cannot be made, where a pool tries on in silence.
        async with await AsyncConnection.connect(self._url) as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('reflexion shared'))")
            for statement in self._ddl:
                await connection.execute(statement.encode())
        pool = AsyncConnectionPool(
            self._url,
            kwargs={"autocommit": True, "prepare_threshold": 0},
            min_size=1,
            max_size=CONNECTIONS,
            open=False,
            check=AsyncConnectionPool.check_connection,
        )
        await pool.open()
        return pool
