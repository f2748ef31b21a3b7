"""One SQLite file for checkpointer, store and ledger, shared by any number of processes on one machine."""

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import aiosqlite
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from reflexion.memory.langgraph_fixes import DiscreetSaver, EagerList
from reflexion.memory.ledger import SqliteLedger
from reflexion.memory.locks import FileLocks, ThreadBusy, uninterrupted
from reflexion.memory.meaning import Meaning
from reflexion.memory.persistence import DatabaseError, Persistence
from reflexion.memory.sqlite_store import IndexedStore, Worker
from reflexion.memory.threads import Thread

T = TypeVar("T")

BUSY_S: Final = 60.0
"""How long a write waits for another process's write, in seconds."""


async def open_sqlite(file: str, stack: AsyncExitStack, embeddings: Embeddings | None) -> Persistence:
    """Open the database in `file`, creating it and its folder where missing; the stack closes it."""
    try:
        path = await asyncio.to_thread(_find, file)
        locks = FileLocks(path.with_name(f"{path.name}.locks"))
        # One at a time: switching to WAL answers "database is locked" without waiting for anybody.
        async with locks.hold("set-up of the database", wait_s=BUSY_S):
            await asyncio.to_thread(_create, path)
            # A connection each, as saver and store each know only their own lock: on one connection the commit
            # of the one would end the transaction of the other.
            saver = _Saver(await stack.enter_async_context(_connection(path, isolation_level="DEFERRED")))
            store = IndexedStore(
                await stack.enter_async_context(_connection(path, isolation_level=None)),
                reader=Worker(await _plain_connection(path, stack), writes=False),
                writer=Worker(await _plain_connection(path, stack), writes=True),
                meaning=Meaning(embeddings),
            )
            stack.push_async_callback(store.aclose)
            ledger = SqliteLedger(await stack.enter_async_context(_connection(path, isolation_level=None)))
            stack.push_async_callback(ledger.aclose)
            await saver.setup()
            await store.setup()
            await ledger.setup()
        # Others need not wait for it: whoever comes first fills what is still missing.
        await store.fill()
    except ThreadBusy:
        raise DatabaseError(
            f"another process has been setting up the SQLite file {path} for {BUSY_S:.0f} s: end it, then try again"
        ) from None
    except (OSError, sqlite3.Error) as error:
        raise await asyncio.to_thread(_explain, file, error) from error

    async def size() -> int:
        return await asyncio.to_thread(_size, path)

    return Persistence(
        f"sqlite:///{path}", saver, store, locks, ledger, durable=True, _size=size, _threads=saver.threads
    )


def _find(file: str) -> Path:
    path = Path(file).expanduser().absolute()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _create(path: Path) -> None:
    # Only a new file is touched by hand: closing one drops all locks of this process on it, SQLite's too.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("write-ahead logging cannot be switched on here")


_PRAGMAS: Final = (
    # In WAL mode nothing committed is lost when the process is killed; when the power fails the last transactions may
    # be, but the file stays sound.
    "PRAGMA synchronous=NORMAL",
    # What is deleted is overwritten with zeros.
    "PRAGMA secure_delete=ON",
)


@asynccontextmanager
async def _connection(path: Path, isolation_level: Literal["DEFERRED"] | None) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(path, timeout=BUSY_S, isolation_level=isolation_level) as connection:
        for pragma in _PRAGMAS:
            await connection.execute(pragma)
        yield connection


async def _plain_connection(path: Path, stack: AsyncExitStack) -> sqlite3.Connection:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        return connection

    connection = await asyncio.to_thread(connect)
    stack.push_async_callback(asyncio.to_thread, connection.close)
    return connection


def _size(path: Path) -> int:
    files = (path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm"))
    return sum(file.stat().st_size for file in files if file.exists())


def _explain(file: str, error: Exception) -> DatabaseError:
    path = Path(file).expanduser().absolute()
    blocker = next((folder for folder in path.parents if folder.exists() and not folder.is_dir()), None)
    if path.is_dir():
        return DatabaseError(f"{path} is a folder, not an SQLite file: name a file in it")
    if blocker:
        return DatabaseError(f"{path} cannot be an SQLite file: {blocker} is a file, not a folder; choose another path")
    if "not a database" in str(error):
        return DatabaseError(f"{path} exists but is no SQLite database: move it away, or choose another path")
    if "malformed" in str(error):
        return DatabaseError(f"the SQLite file {path} is damaged ({error}): move it away, or restore a copy")
    return DatabaseError(
        f"the SQLite file {path} cannot be opened ({error}): "
        "check that you may write the file and its folder and that the disk is local and not full"
    )


class _Saver(EagerList, DiscreetSaver, AsyncSqliteSaver):
    """Ends every transaction that it begins, also when the caller is cancelled or a statement fails.

    The original would leave it open, and with it every other process waiting, until its own next commit.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        super().__init__(connection)
        self._transaction = asyncio.Lock()

    async def _whole(self, write: Coroutine[Any, Any, T]) -> T:
        async def transaction() -> T:
            async with self._transaction:
                try:
                    return await write
                except Exception:
                    await self.conn.rollback()
                    raise

        return await uninterrupted(transaction())

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        return await self._whole(super().aput(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what one task of a step wrote."""
        await self._whole(super().aput_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        await self._whole(super().adelete_thread(thread_id))

    async def threads(self) -> list[Thread]:
        """Every thread."""
        return [Thread(*row) for row in await self.conn.execute_fetchall(_THREADS)]

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete threads, or cut them down to their latest checkpoint, as the saver for PostgreSQL does.

        Raises:
            NotImplementedError: the latest checkpoint of a thread, with a `DeltaChannel`, does not stand by itself.
        """
        for thread_id in thread_ids:
            await (self.adelete_thread(thread_id) if strategy == "delete" else self._whole(self._cut_down(thread_id)))

    async def _cut_down(self, thread_id: str) -> None:
        async with self.lock, self.conn.cursor() as cursor:
            await cursor.execute(_DELTAS, (thread_id,))
            if await cursor.fetchone():
                raise NotImplementedError(f"thread {thread_id!r} uses a DeltaChannel: its history is needed")
            for statement in _CUT_DOWN:
                await cursor.execute(statement, {"thread": thread_id})
            await self.conn.commit()

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what runs of LangGraph's server have written, so that their threads are as they were before."""
        await self._whole(self._delete_for_runs(json.dumps(list(run_ids))))

    async def _delete_for_runs(self, run_ids: str) -> None:
        async with self.lock, self.conn.cursor() as cursor:
            await cursor.execute(_DELETE_WRITES, (run_ids,))
            await cursor.execute(_DELETE_CHECKPOINTS, (run_ids,))
            await self.conn.commit()


_THREADS: Final = """
    SELECT c.thread_id, MAX(c.checkpoint_id) FILTER (WHERE c.checkpoint_ns = ''), COUNT(*),
        SUM(LENGTH(c.checkpoint) + LENGTH(c.metadata)) + COALESCE(
            (SELECT SUM(LENGTH(w.value)) FROM writes w WHERE w.thread_id = c.thread_id), 0)
    FROM checkpoints c GROUP BY c.thread_id
    HAVING MAX(c.checkpoint_ns = '')
"""
_DELTAS: Final = """
    SELECT 1 FROM checkpoints WHERE thread_id = ?
    AND json_extract(CAST(metadata AS TEXT), '$.counters_since_delta_snapshot') IS NOT NULL LIMIT 1
"""
# The latest of each namespace; of a subgraph's call, whose namespace ends with an id of its own, only where the
# latest step of the thread still waits for it. The ids of checkpoints grow with time.
_LATEST: Final = """
    SELECT checkpoint_ns, MAX(checkpoint_id) FROM checkpoints WHERE thread_id = :thread GROUP BY checkpoint_ns
    HAVING checkpoint_ns NOT LIKE '%:%' OR MAX(checkpoint_id) >
        (SELECT MAX(checkpoint_id) FROM checkpoints WHERE thread_id = :thread AND checkpoint_ns = '')
"""
_CUT_DOWN: Final = (
    f"DELETE FROM writes WHERE thread_id = :thread AND (checkpoint_ns, checkpoint_id) NOT IN ({_LATEST})",  # noqa: S608
    f"DELETE FROM checkpoints WHERE thread_id = :thread AND (checkpoint_ns, checkpoint_id) NOT IN ({_LATEST})",  # noqa: S608
    "UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE thread_id = :thread",
)
_DELETE_WRITES: Final = """
    DELETE FROM writes WHERE (thread_id, checkpoint_ns, checkpoint_id) IN (
        SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints
        WHERE json_extract(CAST(metadata AS TEXT), '$.run_id') IN (SELECT value FROM json_each(?)))
"""
_DELETE_CHECKPOINTS: Final = """
    DELETE FROM checkpoints
    WHERE json_extract(CAST(metadata AS TEXT), '$.run_id') IN (SELECT value FROM json_each(?))
"""
