"""One PostgreSQL database for checkpointer, store, ledger and locks, shared by any number of machines."""

import asyncio
import contextlib
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import psycopg
from langchain_core.embeddings import Embeddings
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg import AsyncConnection, AsyncCursor
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from reflexion.memory.fences import PostgresFences, while_held
from reflexion.memory.langgraph_fixes import ClosableStore, DiscreetSaver, EagerList
from reflexion.memory.ledger import PostgresLedger
from reflexion.memory.locks import PollingLocks, ThreadBusy
from reflexion.memory.persistence import DatabaseError, Persistence
from reflexion.models import fence

log = logging.getLogger(__name__)

CONNECT_S: Final = 10
"""How long a connection may take to be made, in whole seconds."""
SETUP_S: Final = 60.0
"""How long the set-up by another process is waited for, in seconds."""
POOL_SIZE: Final = 4
"""Saver, store and ledger each send one thing at a time; more connections would only lie about."""


async def open_postgres(url: str, stack: AsyncExitStack, embeddings: Embeddings | None) -> Persistence:
    """Open the database at `url`, creating the tables where missing; the stack closes it."""
    parameters = _read(url)
    shown = _display(parameters)
    try:
        locks = PostgresLocks(parameters)
        workers = PostgresLocks(parameters, shared=True)
        for kept in (locks, workers):
            stack.push_async_callback(kept.aclose)
        # The first connection is a single one: it fails at once and says why; a pool tries on in silence.
        async with locks.hold("set-up of the database", wait_s=SETUP_S):
            pool = await stack.enter_async_context(_pool(parameters))
            saver = _Saver(pool)
            store = _Store(pool)
            stack.push_async_callback(store.aclose)
            ledger = PostgresLedger(pool)
            stack.push_async_callback(ledger.aclose)
            await saver.setup()
            await store.setup()
            await ledger.setup()
            fences = PostgresFences(pool, workers)
            await fences.setup()
    except ThreadBusy:
        raise DatabaseError(
            f"another process has been setting up {shown} for {SETUP_S:.0f} s: end it, then try again"
        ) from None
    except psycopg.Error as error:
        raise _explain(shown, error, str(parameters.get("password") or "")) from None

    async def size() -> int:
        async with pool.connection() as connection:
            cursor = await connection.execute("SELECT pg_database_size(current_database()) AS size")
            row = await cursor.fetchone()
        return int(row["size"]) if row else 0

    return Persistence(shown, saver, store, locks, ledger, fences=fences, durable=True, _size=size)


def _read(url: str) -> dict[str, Any]:
    try:
        # After the host an unencoded @ is the end of a password with a slash: the host is then no host.
        if "@" not in url.partition("://")[2].partition("/")[2].partition("?")[0]:
            return {"connect_timeout": CONNECT_S, **conninfo_to_dict(url)}
    except psycopg.ProgrammingError:
        # The driver's own message quotes the part that it does not understand, which may be the password.
        pass
    raise DatabaseError(
        "the PostgreSQL URL cannot be read: write postgresql://user:password@host:5432/database, "
        "with special characters in the password percent-encoded"
    )


def _pool(parameters: dict[str, Any]) -> AsyncConnectionPool[AsyncConnection[DictRow]]:
    # The savers want autocommit, dict rows, and statements prepared at first use. It is checked when
    # it is handed out: after a restart of the server the next checkpoint is saved instead of lost.
    return AsyncConnectionPool(
        kwargs={**parameters, "autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
        min_size=1,
        max_size=POOL_SIZE,
        open=False,
        check=AsyncConnectionPool.check_connection,
    )


def _display(parameters: dict[str, Any]) -> str:
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{user}{parameters.get('host', '')}{port}/{parameters.get('dbname', '')}"


def _explain(shown: str, error: psycopg.Error, password: str) -> DatabaseError:
    reason = " ".join(str(error).split()) or type(error).__name__
    if password:
        reason = reason.replace(password, "***")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        advice = "let the user create tables in this database, or set it up once as one who may"
    elif "authentication failed" in reason or "no password supplied" in reason:
        advice = "check user and password in the URL"
    elif "does not exist" in reason:
        advice = "create it, or correct the URL"
    else:
        advice = "check that the server runs and that host and port in the URL are right"
    return DatabaseError(f"cannot open {shown}: {reason}; {advice}")


class _Saver(EagerList, DiscreetSaver, AsyncPostgresSaver):
    """Writes for a run only while its fence holds; and can take back what runs have written."""

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[AsyncCursor[DictRow]]:
        mine = fence.current.get()
        # The original asks for a pipeline where it writes, and only there.
        fences = [mine] if mine and pipeline else []
        async with super()._cursor(pipeline=pipeline) as cursor, while_held(cursor.connection, fences):
            yield cursor

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what runs of LangGraph's server have written, so that their threads are as they were before."""
        # Values of channels stay: later checkpoints of a fork may share them, and they go with their thread.
        async with self._cursor(pipeline=True) as cursor:
            await cursor.execute(
                "DELETE FROM checkpoint_writes WHERE (thread_id, checkpoint_ns, checkpoint_id) IN "
                "(SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE metadata->>'run_id' = ANY(%s))",
                (list(run_ids),),
            )
            await cursor.execute("DELETE FROM checkpoints WHERE metadata->>'run_id' = ANY(%s)", (list(run_ids),))


class _Store(ClosableStore, AsyncPostgresStore):
    """The store, with an end."""


class PostgresLocks(PollingLocks):
    """Advisory locks that belong to one connection of their own, and are gone when it is.

    Two agents, in one process or in several, have a connection each. A pooler in between must keep one server
    connection for ours (PgBouncer: `pool_mode=session`).

    A lock that is `shared` keeps those out that are not, and none of its own kind.
    """

    def __init__(self, parameters: dict[str, Any], *, shared: bool = False) -> None:
        self._parameters = parameters
        self._shared = shared
        self._connection: AsyncConnection[Any] | None = None
        self._held: Counter[str] = Counter()
        self._one_at_a_time = asyncio.Lock()

    async def aclose(self) -> None:
        """Close the connection, which frees all locks."""
        if self._connection:
            await self._connection.close()

    async def _try_take(self, thread_id: str) -> bool:
        async with self._one_at_a_time:
            # The server lets one connection take the same lock twice.
            if self._held[thread_id] and not self._shared:
                return False
            try:
                taken = await self._lock(thread_id)
            except psycopg.OperationalError:
                if not self._lost():
                    raise
                taken = await self._lock(thread_id)
            if taken:
                self._held[thread_id] += 1
            return taken

    async def _give_back(self, thread_id: str) -> None:
        async with self._one_at_a_time:
            self._held -= Counter([thread_id])
            if self._connection is None or self._lost():
                return
            # A connection that breaks at this moment has freed the lock by that.
            with contextlib.suppress(psycopg.OperationalError):
                unlock = "pg_advisory_unlock_shared" if self._shared else "pg_advisory_unlock"
                await self._connection.execute(f"SELECT {unlock}(%s)", (_key(thread_id),))

    def _lost(self) -> bool:
        return self._connection is not None and self._connection.closed

    async def _lock(self, thread_id: str) -> bool:
        if self._connection is None or self._connection.closed:
            self._connection = await self._connect()
        return await self._try_lock(self._connection, thread_id)

    async def _connect(self) -> AsyncConnection[Any]:
        connection = await AsyncConnection.connect(**{**self._parameters, "autocommit": True})
        # Where our machine vanishes without a word, the server notices within a minute rather than two hours.
        for setting, value in (("idle", 30), ("interval", 10), ("count", 3)):
            await connection.execute(f"SET tcp_keepalives_{setting} = {value}")
        for thread_id in self._held.elements():
            if not await self._try_lock(connection, thread_id):
                log.warning("thread %r: its lock was lost with the connection, and another run took it", thread_id)
        return connection

    async def _try_lock(self, connection: AsyncConnection[Any], thread_id: str) -> bool:
        # Tried, never waited for: CREATE INDEX CONCURRENTLY in the set-up waits for every statement that waits.
        lock = "pg_try_advisory_lock_shared" if self._shared else "pg_try_advisory_lock"
        cursor = await connection.execute(f"SELECT {lock}(%s)", (_key(thread_id),))
        row = await cursor.fetchone()
        return bool(row and row[0])


def _key(thread_id: str) -> int:
    # Hashed here rather than by the server's hashtextextended, which takes neither NUL nor a lone surrogate.
    digest = hashlib.blake2b(f"reflexion {thread_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
