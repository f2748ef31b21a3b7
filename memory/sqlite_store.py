"""LangGraph's SQLite store, with items that are found by meaning and by words, and no extension of SQLite for it."""

import asyncio
import logging
import math
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import aiosqlite
import numpy as np
import orjson
from langgraph.store.base import (
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)
from langgraph.store.sqlite.aio import AsyncSqliteStore

from reflexion.memory.cells import Cells, Vectors
from reflexion.memory.langgraph_fixes import ClosableStore
from reflexion.memory.locks import uninterrupted
from reflexion.memory.meaning import CAUGHT_UP, Meaning
from reflexion.memory.sqlite_index import TABLES, Asked, Change, Index, clean

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger(__name__)

BATCH: Final = 500
"""Items that are written, and texts that are embedded, at a time: others wait no longer than that takes."""
LESSONS: Final = "reflexion.lessons"
"""Below this namespace every item with a task is indexed, also one from before there was an index."""


class Worker:
    """A plain connection that does one piece of work after the other, each in a thread and in a transaction.

    A piece of work that has begun is done to its end, also when its caller is cancelled.
    """

    def __init__(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        self._connection = connection
        # Immediately: a transaction that reads before it writes is told "database is locked" at once, whatever the
        # timeout, where another process has written in between.
        self._begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        self._free = asyncio.Lock()

    async def do(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a piece of work; all that it wrote is undone where it raises."""

        async def when_free() -> T:
            async with self._free:
                return await asyncio.to_thread(self._transaction, lambda: work(self._connection, *args, **kwargs))

        return await uninterrupted(when_free())

    async def checkpoint(self) -> None:
        """Move what was written from the log into the file and empty the log, as far as no other process reads it."""

        def checkpoint() -> None:
            # Read to its end: a statement that is not would keep the next transaction from being committed.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

        async def when_free() -> None:
            async with self._free:
                await asyncio.to_thread(checkpoint)

        await uninterrupted(when_free())

    def _transaction(self, work: Callable[[], T]) -> T:
        self._connection.execute(self._begin)
        try:
            result = work()
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result


class IndexedStore(ClosableStore, AsyncSqliteStore):
    """Answers searches with a query from an index of its own, which it writes in the items' transaction.

    Indexed is what an item's `index` names, fields of its value. Searches with a filter, or without a query, and
    everything else are answered by the original.
    """

    def __init__(self, connection: aiosqlite.Connection, reader: Worker, writer: Worker, meaning: Meaning) -> None:
        super().__init__(connection)
        self._reader, self._writer, self._meaning = reader, writer, meaning
        # One for each connection: they work at the same time.
        self._read_index, self._written_index = Index(Cells()), Index(Cells())

    async def setup(self) -> None:
        """Create the tables where they are missing, and index the lessons of a database from before the index."""
        await super().setup()
        await self._writer.do(_create)
        if await self._reader.do(_fact, "adopted") is None:
            await self._adopt()
            await self._writer.do(_keep, "adopted", b"yes")

    async def fill(self, most: float = CAUGHT_UP) -> int:
        """Give vectors to the items that have none, about so many at most; returns how many got one."""
        filled, last = 0, 0
        while self._meaning.available and filled < most:
            waiting = await self._reader.do(self._read_index.waiting, last, BATCH)
            vectors = await self._meaning.vectors([text for _, text in waiting])
            if vectors is None:
                break
            made = {each: (text, vector) for (each, text), vector in zip(waiting, vectors, strict=True)}
            added = await self._writer.do(self._add_vectors, made)
            if added is None:
                break
            filled, last = filled + added, waiting[-1][0]
            log.info("memory: %d items more are found by their meaning", filled)
        return filled

    async def areindex(self) -> int:
        """Make the index anew, with the vectors of today's model; returns how many items are in it.

        Killed in between, the rest gets its vectors when the database is opened again.
        """
        await self._adopt()
        # Without a vector of it nobody knows yet what tells the model from others.
        works = await self._meaning.works()
        await self._writer.do(self._restart, vectors=works)
        await self.fill(math.inf)
        return await self._reader.do(self._read_index.size)

    async def ascrub(self) -> None:
        """Leave nothing in the file of what was deleted before."""
        await self._writer.do(self._written_index.scrub)
        await self._writer.checkpoint()

    def _restart(self, connection: sqlite3.Connection, *, vectors: bool) -> None:
        if vectors:
            _keep(connection, "probe", self._meaning.probe.tobytes())
        self._written_index.restart(connection, vectors=vectors)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations, the reads before the writes, as the original does."""
        ops = list(ops)
        for op in ops:
            validate_op_namespace(op)
        asked = {n: op for n, op in enumerate(ops) if isinstance(op, SearchOp) and op.query and not op.filter}
        writes = [op for op in ops if isinstance(op, PutOp)]
        reads = {n: op for n, op in enumerate(ops) if n not in asked and not isinstance(op, PutOp)}
        results: list[Result] = [None] * len(ops)
        if reads:
            for n, read in zip(reads, await super().abatch(reads.values()), strict=True):
                results[n] = read
        if asked:
            for n, found in zip(asked, await self._search(list(asked.values())), strict=True):
                results[n] = found
        if writes:
            await self._write(writes)
        return results

    async def _search(self, ops: Sequence[SearchOp]) -> list[list[SearchItem]]:
        if await self._reader.do(self._read_index.empty):
            return [[] for _ in ops]
        texts = [clean(op.query or "") for op in ops]
        vectors = await self._meaning.vectors(texts)
        return await self._reader.do(self._found_by, ops, texts, vectors)

    def _found_by(
        self, connection: sqlite3.Connection, ops: Sequence[SearchOp], texts: list[str], vectors: list[Vectors] | None
    ) -> list[list[SearchItem]]:
        probe = _fact(connection, "probe")
        comparable = vectors is not None and probe is not None and self._meaning.made(np.frombuffer(probe, np.float32))
        usable = vectors if vectors is not None and comparable else [None] * len(ops)
        return [
            self._found(connection, op, Asked(op.namespace_prefix, text, vector, op.offset + op.limit))
            for op, text, vector in zip(ops, texts, usable, strict=True)
        ]

    def _found(self, connection: sqlite3.Connection, op: SearchOp, asked: Asked) -> list[SearchItem]:
        items = []
        for hit in self._read_index.search(connection, asked)[op.offset :]:
            statement = "SELECT value, created_at, updated_at FROM store WHERE prefix=? AND key=?"
            row = connection.execute(statement, (hit.prefix, hit.key)).fetchone()
            if row:
                value, created, updated = row
                namespace = tuple(hit.prefix.split("."))
                items.append(SearchItem(namespace, hit.key, orjson.loads(value), created, updated, hit.score))
        return items

    async def _write(self, ops: Sequence[PutOp]) -> None:
        changes = [Change(".".join(op.namespace), op.key, _text(op)) for op in ops]

        texts = await self._reader.do(self._without_vector, changes) if self._meaning.available else []
        vectors = dict(zip(texts, await self._meaning.vectors(texts) or (), strict=False))
        await self._writer.do(self._put, ops, [replace(each, vector=vectors.get(each.text or "")) for each in changes])

    def _without_vector(self, connection: sqlite3.Connection, changes: Sequence[Change]) -> list[str]:
        texts = (
            each.text
            for each in changes
            if each.text and self._read_index.known(connection, each.prefix, each.key) != (each.text, True)
        )
        return list(dict.fromkeys(texts))

    def _put(self, connection: sqlite3.Connection, ops: Sequence[PutOp], changes: Sequence[Change]) -> None:
        for start in range(0, len(ops), BATCH):
            queries, _ = self._prepare_batch_PUT_queries(list(enumerate(ops[start : start + BATCH])))
            for query, parameters in queries:
                connection.execute(query, parameters)
        if any(each.vector is not None for each in changes) and not self._fits(connection):
            changes = [replace(each, vector=None) for each in changes]
        self._written_index.write(connection, changes)

    async def _adopt(self) -> None:
        """Index the words of lessons that are not in the index."""
        last, adopted = (f"{LESSONS}.", ""), 0
        while rows := await self._writer.do(self._adopt_after, *last):
            last, adopted = (rows[-1][0], rows[-1][1]), adopted + len(rows)
            log.info("memory: the words of %d lessons from before the index are in it", adopted)

    def _adopt_after(self, connection: sqlite3.Connection, prefix: str, key: str) -> list[tuple[str, str, bytes]]:
        statement = (
            "SELECT prefix, key, value FROM store WHERE (prefix, key) > (?, ?) AND prefix < ? "
            "ORDER BY prefix, key LIMIT ?"
        )
        rows = connection.execute(statement, (prefix, key, f"{LESSONS}/", BATCH)).fetchall()
        new = [row for row in rows if self._written_index.known(connection, row[0], row[1]) is None]
        tasks = [(row[0], row[1], orjson.loads(row[2]).get("task")) for row in new]
        self._written_index.write(
            connection, [Change(p, k, clean(task)) for p, k, task in tasks if isinstance(task, str) and task]
        )
        return rows

    def _add_vectors(self, connection: sqlite3.Connection, made: dict[int, tuple[str, Vectors]]) -> int | None:
        return self._written_index.add_vectors(connection, made) if self._fits(connection) else None

    def _fits(self, connection: sqlite3.Connection) -> bool:
        """Whether the model is that of the database; the first one is."""
        probe = _fact(connection, "probe")
        if probe is None:
            _keep(connection, "probe", self._meaning.probe.tobytes())
        return probe is None or self._meaning.made(np.frombuffer(probe, np.float32))

    @asynccontextmanager
    async def _cursor(self, *, transaction: bool = True) -> AsyncIterator[aiosqlite.Cursor]:
        async with self.lock, self.conn.cursor() as cursor:
            await cursor.execute("BEGIN")
            try:
                yield cursor
                await cursor.execute("COMMIT")
            except BaseException:
                await self.conn.rollback()
                raise


def _text(op: PutOp) -> str | None:
    """The text by which the item of a write is to be found."""
    if op.value is None or not op.index:
        return None
    parts: list[str] = [text for field in op.index for text in get_text_at_path(op.value, tokenize_path(field))]
    return clean("\n".join(parts)) or None


def _create(connection: sqlite3.Connection) -> None:
    for table in TABLES:
        connection.execute(table)


def _fact(connection: sqlite3.Connection, name: str) -> Any:
    row = connection.execute("SELECT value FROM search_facts WHERE name=?", (name,)).fetchone()
    return row[0] if row else None


def _keep(connection: sqlite3.Connection, name: str, value: bytes) -> None:
    connection.execute("INSERT OR REPLACE INTO search_facts (name, value) VALUES (?, ?)", (name, value))
