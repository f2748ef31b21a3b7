"""One PostgreSQL database for checkpointer, store, ledger and locks, shared by any number of machines."""

import asyncio
import contextlib
import hashlib
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import psycopg
from langchain_core.embeddings import Embeddings
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.base import Op, PutOp, Result, SearchItem, SearchOp, validate_op_namespace
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg import AsyncConnection, AsyncCursor
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from reflexion.memory.fences import PostgresFences, while_held
from reflexion.memory.langgraph_fixes import ClosableStore, DiscreetSaver, EagerList
from reflexion.memory.ledger import PostgresLedger
from reflexion.memory.locks import PollingLocks, ThreadBusy
from reflexion.memory.meaning import Meaning
from reflexion.memory.persistence import DatabaseError, Persistence
from reflexion.memory.postgres_index import PostgresIndex
from reflexion.memory.postgres_sql import exists, scalar
from reflexion.memory.threads import Thread
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
            store = _Store(pool, embeddings)
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
            return int(await scalar(connection, "SELECT pg_database_size(current_database())"))

    return Persistence(
        shown, saver, store, locks, ledger, fences=fences, durable=True, _size=size, _threads=saver.threads
    )


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
    """Writes for a run only while its fence holds, can take back what runs have written, and names its threads."""

    async def setup(self) -> None:
        """Create the tables, or bring them up to date, where they are not."""
        if not await _up_to_date(self.conn, "checkpoint_migrations", len(self.MIGRATIONS)):
            await super().setup()

    async def threads(self) -> list[Thread]:
        """Every thread."""
        async with self._cursor() as cursor:
            await cursor.execute(_THREADS)
            return [Thread(**row) for row in await cursor.fetchall()]

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


_THREADS: Final = """
    SELECT c.thread_id AS id, MAX(c.checkpoint_id) FILTER (WHERE c.checkpoint_ns = '') AS last_checkpoint,
        COUNT(*) AS checkpoints,
        (SUM(pg_column_size(c.checkpoint) + pg_column_size(c.metadata))
            + COALESCE((SELECT SUM(LENGTH(b.blob)) FROM checkpoint_blobs b WHERE b.thread_id = c.thread_id), 0)
            + COALESCE((SELECT SUM(LENGTH(w.blob)) FROM checkpoint_writes w WHERE w.thread_id = c.thread_id), 0)
        )::bigint AS bytes
    FROM checkpoints c GROUP BY c.thread_id
    HAVING BOOL_OR(c.checkpoint_ns = '')
"""


class _Store(ClosableStore, AsyncPostgresStore):
    """The store with an end and an index; a batch is written as a whole or not at all, its reads come first."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[DictRow]], embeddings: Embeddings | None) -> None:
        super().__init__(pool)
        self._index = PostgresIndex(pool, Meaning(embeddings))

    @property
    def lacks(self) -> str:
        """Why this database can hold no vectors, and what to do about it; empty where it can."""
        return self._index.lacks

    async def setup(self) -> None:
        """Create tables and index, or bring them up to date, where they are not."""
        if not await _up_to_date(self.conn, "store_migrations", len(self.MIGRATIONS)):
            await super().setup()
        await self._index.setup()

    async def areindex(self) -> int:
        """Index everything anew, with the embeddings that the database was opened with; returns how many items."""
        return await self._index.reindex()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations. A search with a query, and without a filter, is answered from the index."""
        ops = list(ops)
        for op in ops:
            validate_op_namespace(op)
        others = [op for op in ops if not isinstance(op, PutOp) and not _is_question(op)]
        read = iter(await super().abatch(others) if others else [])
        results: list[Result] = []
        for op in ops:
            if isinstance(op, PutOp):
                results.append(None)
            elif isinstance(op, SearchOp) and _is_question(op):
                results.append([_found(row) for row in await self._index.search(op)])
            else:
                results.append(next(read))
        last = {(op.namespace, op.key): op._replace(value=_storable(op.value)) for op in ops if isinstance(op, PutOp)}
        # In one order everywhere: two processes that write the same items must not wait for each other.
        if puts := sorted(last.values(), key=lambda put: (put.namespace, put.key)):
            entries = await self._index.entries(puts)
            async with self._cursor(pipeline=True) as cursor, cursor.connection.transaction():
                await self._batch_put_ops(list(enumerate(puts)), cursor)
                await self._index.write(cursor, puts, entries)
        return results


def _is_question(op: Op) -> bool:
    return isinstance(op, SearchOp) and bool(op.query) and not op.filter


def _found(row: DictRow) -> SearchItem:
    return SearchItem(
        namespace=tuple(row["prefix"].split(".")),
        key=row["key"],
        value=row["value"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        score=row["score"],
    )


def _storable(value: Any) -> Any:
    """The same with signs in place of what PostgreSQL keeps in no text: NUL, and halves of a surrogate pair."""
    match value:
        case str():
            return _UNSTORABLE.sub(lambda found: "\u2400" if found[0] == "\0" else "\ufffd", value)
        case dict():
            return {_storable(key): _storable(each) for key, each in value.items()}
        case list() | tuple():
            return [_storable(each) for each in value]
        case _:
            return value


_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


async def _up_to_date(pool: Any, migrations: str, newest: int) -> bool:
    async with pool.connection() as connection:
        if not await exists(connection, migrations):
            return False
        made = await scalar(connection, f"SELECT max(v) FROM {migrations}")  # noqa: S608 - LangGraph's own name
        return made is not None and made >= newest - 1


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
