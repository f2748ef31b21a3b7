"""A PostgreSQL database as workers share counters through it: few connections, tables made when first needed."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

from reflexion.models.errors import ModelError

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

CONNECTIONS = 2
"""Of one process: steps are short, and a database has few connections for many workers."""
PATIENCE_S = 10.0
"""Seconds after which a database that gives no answer counts as unreachable."""
_RECONNECT_S = 5.0
"""Seconds for which the pool tries to reconnect by itself, at ever longer intervals; then the next statement does."""


class SharedPostgres:
    """Runs single statements, each a transaction of its own: a process that is stopped in mid-step holds no lock.

    Tables are created under a lock, by whichever worker comes first. Who may create none uses those that are there.
    """

    def __init__(self, url: str, ddl: Sequence[str]) -> None:
        """Remember where the database is.

        Args:
            url: `postgresql://user:password@host:port/database`.
            ddl: statements that create what is missing.
        """
        self._url = url
        self._ddl = list(ddl)
        self._forbidden = False
        self._pool: AsyncConnectionPool[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._turns = asyncio.Semaphore(CONNECTIONS)

    @classmethod
    def at(cls, where: Union[str, "SharedPostgres"], ddl: Sequence[str]) -> "SharedPostgres":
        """The database behind a URL; or one that others use, and that nobody has asked yet, with these tables too."""
        if isinstance(where, str):
            return cls(where, ddl)
        where.needs(ddl)
        return where

    def needs(self, ddl: Sequence[str]) -> None:
        """Create these tables too, at the first use."""
        self._ddl += [statement for statement in ddl if statement not in self._ddl]

    async def ask(self, sql: str, parameters: Sequence[Any] = (), *, patience_s: float | None = None) -> list[Any]:
        """The rows that a statement brings; `patience_s` is how long it is waited for, instead of `PATIENCE_S`.

        Raises:
            ModelError: of kind `connection`: the database cannot be reached, or refuses.
        """
        import psycopg  # noqa: PLC0415 - takes long to import
        from psycopg_pool import PoolTimeout  # noqa: PLC0415

        try:
            # Whoever waits for his turn is not kept waiting by the database.
            async with self._turns_here(), asyncio.timeout(patience_s or PATIENCE_S):
                pool = await self._opened()
                async with pool.connection() as connection:
                    cursor = await connection.execute(sql.encode(), parameters)
                    return await cursor.fetchall() if cursor.description else []
        except (psycopg.Error, PoolTimeout, OSError, TimeoutError) as error:
            reason = type(error).__name__ if isinstance(error, TimeoutError) else " ".join(str(error).split())
            if self._forbidden and isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedFunction):
                reason += "; let the user create it, or set the database up once as one who may"
            raise ModelError("connection", f"what workers share in PostgreSQL cannot be reached: {reason}") from error

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those of an earlier one ended with it."""
        if self._pool and self._loop is asyncio.get_running_loop():
            await self._pool.close()
        self._pool = None

    async def _opened(self) -> "AsyncConnectionPool[Any]":
        async with self._opening:
            if self._pool is None:
                self._pool = await self._open()
            return self._pool

    def _turns_here(self) -> asyncio.Semaphore:
        """Turns in the running event loop; connections do not outlive theirs."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._pool, self._loop = None, loop
            self._opening, self._turns = asyncio.Lock(), asyncio.Semaphore(CONNECTIONS)
        return self._turns

    async def _open(self) -> "AsyncConnectionPool[Any]":
        from psycopg import AsyncConnection, errors  # noqa: PLC0415
        from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415

        # A single one first: it says at once why it cannot be made, where a pool tries on in silence.
        async with await AsyncConnection.connect(self._url) as connection:
            try:
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock(hashtext('reflexion shared'))")
                    for statement in self._ddl:
                        await connection.execute(statement.encode())
            except errors.InsufficientPrivilege:
                self._forbidden = True
        pool = AsyncConnectionPool(
            self._url,
            kwargs={"autocommit": True, "prepare_threshold": 0},
            # All of them from the start: a pool that is closed while it grows may keep its process from ending.
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            open=False,
            reconnect_timeout=_RECONNECT_S,
            check=AsyncConnectionPool.check_connection,
        )
        try:
            await pool.open(wait=True, timeout=PATIENCE_S)
        except BaseException:
            await pool.close()
            raise
        return pool
