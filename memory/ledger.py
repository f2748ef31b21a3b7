"""The ledger of all requests to models, in a table beside the checkpointer's."""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import TypedDict

from reflexion.memory.locks import uninterrupted
from reflexion.models import fence
from reflexion.models.fence import Fence
from reflexion.models.kept import KeptReply
from reflexion.models.ledger import KEEP_REPLIES_S, KEEP_S, LOST, PENDING, LedgerLine
from reflexion.models.usage import NOT_SENT, Usage

if TYPE_CHECKING:  # nobody needs the other database's driver
    from aiosqlite import Connection
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow
    from psycopg_pool import AsyncConnectionPool

PRUNED_AT_ONCE: Final = 5_000
"""Lines that one transaction deletes at most, so that other writers need not wait long."""

_COLUMNS: Final = ("run_id", "thread_id", "batch_id", "started_at", "outcome")
"""What is asked for by; everything else is in the JSON of `line`."""


class Written(TypedDict):
    """A line as it is stored."""

    line: LedgerLine
    reply: str | None
    """JSON of the reply that is kept with it."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What was asked for one line."""

    line: LedgerLine | None
    """None to delete it."""
    reply: KeptReply | None
    """What is kept with it."""
    fence: Fence | None
    """Of the run that asks."""
    done: asyncio.Future[None]


class TableLedger(ABC):
    """A `LedgerStore` in a table.

    Changes that are asked for while another is being committed are committed together: one commit serves all calls
    that run in parallel, and each still returns only when its line is safe.
    """

    _lose: str
    """SQL that marks a run's pending lines as lost."""
    _total: str
    """SQL that sums a batch's lines up, apart for every cost, so that the sum of these is exact."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._changes: dict[str, _Change] = {}
        self._committing: asyncio.Task[None] | None = None

    @abstractmethod
    async def setup(self) -> None:
        """Create the table where it is missing."""

    @abstractmethod
    async def _commit(self, written: Sequence[Written], removed: Sequence[str], fences: Collection[Fence]) -> None:
        """Write and remove lines in one transaction each at most, for runs whose fences all hold."""

    async def _query(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """The first column's values; `?` stands for a parameter."""
        return [row[0] for row in await self._rows(sql, parameters)]

    @abstractmethod
    def _line(self, stored: Any) -> LedgerLine:
        """A line from its column."""

    @abstractmethod
    async def _rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Rows as tuples; `?` stands for a parameter."""

    @abstractmethod
    async def _change(self, sql: str, parameters: Sequence[Any]) -> int:
        """Change rows, commit, and return how many; `?` stands for a parameter."""

    async def write(self, line: LedgerLine, reply: KeptReply | None = None) -> None:
        """Add a line, or replace the one with the same id; committed when it returns."""
        await self._ask(line["id"], line, reply)

    async def remove(self, line_id: str) -> None:
        """Delete a line, if it is there."""
        await self._ask(line_id, None)

    async def lines(
        self, *, run_id: str | None = None, thread_id: str | None = None, batch_id: str | None = None
    ) -> list[LedgerLine]:
        """The lines that match everything given, oldest first."""
        wanted = {"run_id": run_id, "thread_id": thread_id, "batch_id": batch_id}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in given) or "true"
        sql = f"SELECT line FROM reflexion_ledger WHERE {where} ORDER BY started_at, id"  # noqa: S608 - own names
        return [self._line(line) for line in await self._query(sql, list(given.values()))]

    async def replies(self, run_id: str) -> list[KeptReply]:
        """The replies that are kept of a run, oldest first."""
        return [json.loads(reply) for reply in await self._query(_REPLIES, [run_id])]

    async def forget(self, run_id: str) -> None:
        """Delete a run's replies."""
        await self._change(_FORGET, [run_id])

    async def total(self, *, batch_id: str) -> Usage:
        """The sum of a batch's lines, however many these are."""
        rows = await self._rows(self._total, [batch_id])
        costs = [(None if cost is None else Decimal(cost), number) for cost, number, *_ in rows]
        sums = [sum(int(row[place]) for row in rows) for place in range(2, 8)]
        requests, prompt, completion, cached, reasoning, estimated = sums
        known = [cost * number for cost, number in costs if cost is not None]
        return Usage(
            requests=requests,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            reasoning_tokens=reasoning,
            cost_usd=sum(known, Decimal(0)) if len(known) == len(costs) else None,
            estimated=estimated > 0,
        )

    async def lose(self, run_id: str) -> int:
        """Mark a dead run's pending lines as lost; returns how many."""
        return await self._change(self._lose, [run_id])

    async def prune(self, *, older_than_s: float = KEEP_S) -> int:
        """Delete the lines of requests that started longer ago than so many seconds; returns how many."""
        await self._change(_FORGET_OLD, [self._now() - KEEP_REPLIES_S])
        oldest = self._now() - older_than_s
        total = 0
        while pruned := await self._change(_PRUNE, [oldest, PRUNED_AT_ONCE]):
            total += pruned
        return total

    async def aclose(self) -> None:
        """Finish what was asked for."""
        if self._committing is not None:
            await uninterrupted(asyncio.wait([self._committing]))

    async def _ask(self, key: str, line: LedgerLine | None, reply: KeptReply | None = None) -> None:
        earlier = self._changes.get(key)
        done = earlier.done if earlier else asyncio.get_running_loop().create_future()
        self._changes[key] = _Change(line, reply, fence.current.get(), done)
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_all())
        await asyncio.shield(done)

    async def _commit_all(self) -> None:
        while self._changes:
            changes, self._changes = self._changes, {}
            if not await self._tried(changes) and len(changes) > 1:
                # One that the database refuses must not take the others with it.
                for key, change in changes.items():
                    await self._tried({key: change})

    async def _tried(self, changes: dict[str, _Change]) -> bool:
        written = [
            Written(line=change.line, reply=None if change.reply is None else json.dumps(change.reply))
            for change in changes.values()
            if change.line is not None
        ]
        removed = [key for key, change in changes.items() if change.line is None]
        try:
            await self._commit(written, removed, {change.fence for change in changes.values() if change.fence})
        except Exception as error:  # noqa: BLE001 - handed to whoever asked
            if len(changes) == 1:
                for change in changes.values():
                    change.done.set_exception(error)
            return False
        for change in changes.values():
            change.done.set_result(None)
        return True


_TOKENS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
_UNSENT: Final = ", ".join(f"'{outcome}'" for outcome in sorted(NOT_SENT))


def _total(cost: str, token: str, estimated: str) -> str:
    """The SQL of a sum; its texts say how a database reads a line's JSON."""
    tokens = ", ".join(f"sum({token.format(name)})" for name in _TOKENS)
    return (
        f"SELECT {cost}, count(*), sum(CASE WHEN outcome IN ({_UNSENT}) THEN 0 ELSE 1 END), {tokens}, "  # noqa: S608
        f"sum(CASE WHEN {estimated} THEN 1 ELSE 0 END) FROM reflexion_ledger WHERE batch_id = ? GROUP BY {cost}"
    )


_PRUNE: Final = """
DELETE FROM reflexion_ledger WHERE id IN (SELECT id FROM reflexion_ledger WHERE started_at < ? LIMIT ?)
"""


_REPLIES: Final = "SELECT reply FROM reflexion_ledger WHERE run_id = ? AND reply IS NOT NULL ORDER BY started_at, id"
_FORGET: Final = "UPDATE reflexion_ledger SET reply = NULL WHERE run_id = ? AND reply IS NOT NULL"
_FORGET_OLD: Final = "UPDATE reflexion_ledger SET reply = NULL WHERE started_at < ? AND reply IS NOT NULL"

_INDEXES: Final = (
    *(
        f"CREATE INDEX IF NOT EXISTS reflexion_ledger_{name} ON reflexion_ledger ({name})"
        for name in ("run_id", "thread_id", "batch_id", "started_at")
    ),
    "CREATE INDEX IF NOT EXISTS reflexion_ledger_reply ON reflexion_ledger (run_id) WHERE reply IS NOT NULL",
)
_REPLACE: Final = f"""
ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS, "line", "reply"))}
"""


class SqliteLedger(TableLedger):
    """In an SQLite file, on a connection of its own in autocommit mode."""

    def __init__(self, connection: "Connection", *, now: Callable[[], float] = time.time) -> None:
        super().__init__(now=now)
        self._connection = connection
        self._lose = _LOSE_SQLITE
        self._total = _total(
            "json_extract(line, '$.cost_usd')", "json_extract(line, '$.{}')", "json_extract(line, '$.estimated')"
        )

    async def setup(self) -> None:
        """Create the table where it is missing."""
        await self._connection.execute(_CREATE_SQLITE)
        if "reply" not in await self._query("SELECT name FROM pragma_table_info('reflexion_ledger')", []):
            await self._connection.execute("ALTER TABLE reflexion_ledger ADD COLUMN reply TEXT")
        for sql in _INDEXES:
            await self._connection.execute(sql)

    async def _commit(self, written: Sequence[Written], removed: Sequence[str], fences: Collection[Fence]) -> None:
        assert not fences, "there are none in a file on one machine"
        if written:
            await self._change(_WRITE_SQLITE, [json.dumps(written)])
        if removed:
            await self._change(_REMOVE_SQLITE, [json.dumps(removed)])

    async def _rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.execute_fetchall(sql, parameters)]

    def _line(self, stored: Any) -> LedgerLine:
        line: LedgerLine = json.loads(stored)
        return line

    async def _change(self, sql: str, parameters: Sequence[Any]) -> int:
        cursor = await self._connection.execute(sql, parameters)
        count = cursor.rowcount
        await cursor.close()
        return count


_CREATE_SQLITE: Final = """
CREATE TABLE IF NOT EXISTS reflexion_ledger (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, thread_id TEXT NOT NULL, batch_id TEXT NOT NULL,
    started_at REAL NOT NULL, outcome TEXT NOT NULL, line TEXT NOT NULL
)
"""

# One statement takes any number of lines, and is a transaction of its own.
_WRITE_SQLITE: Final = f"""
INSERT INTO reflexion_ledger (id, {", ".join(_COLUMNS)}, line, reply)
SELECT json_extract(value, '$.line.id'), {", ".join(f"json_extract(value, '$.line.{name}')" for name in _COLUMNS)},
    json_extract(value, '$.line'), json_extract(value, '$.reply')
FROM json_each(?) WHERE true {_REPLACE}
"""  # noqa: S608 - own names
_REMOVE_SQLITE: Final = "DELETE FROM reflexion_ledger WHERE id IN (SELECT value FROM json_each(?))"
_LOSE_SQLITE: Final = f"""
UPDATE reflexion_ledger SET outcome = '{LOST}', line = json_set(line, '$.outcome', '{LOST}')
WHERE run_id = ? AND outcome = '{PENDING}'
"""  # noqa: S608 - constants


class PostgresLedger(TableLedger):
    """In a PostgreSQL database, on connections from the pool of checkpointer and store."""

    def __init__(
        self, pool: "AsyncConnectionPool[AsyncConnection[DictRow]]", *, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(now=now)
        self._pool = pool
        self._lose = _LOSE_POSTGRES
        self._total = _total("line->>'cost_usd'", "(line->>'{}')::bigint", "(line->>'estimated')::boolean")

    async def setup(self) -> None:
        """Create the table where it is missing."""
        (there,) = await self._query(_UP_TO_DATE_POSTGRES, [])
        # "IF NOT EXISTS" asks for the right to create tables even where nothing is to be created.
        if not there:
            for sql in _CREATE_POSTGRES:
                await self._change(sql, [])

    async def _commit(self, written: Sequence[Written], removed: Sequence[str], fences: Collection[Fence]) -> None:
        from reflexion.memory.fences import while_held  # noqa: PLC0415 - brings the driver

        async with self._pool.connection() as connection, while_held(connection, fences):
            if written:
                await connection.execute(_postgres(_WRITE_POSTGRES), [json.dumps(written)])
            if removed:
                await connection.execute("DELETE FROM reflexion_ledger WHERE id = ANY(%s)", [list(removed)])

    async def _rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        from psycopg.rows import tuple_row  # noqa: PLC0415

        async with self._pool.connection() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(_postgres(sql), parameters)
            return await cursor.fetchall()

    def _line(self, stored: Any) -> LedgerLine:
        line: LedgerLine = stored
        return line

    async def _change(self, sql: str, parameters: Sequence[Any]) -> int:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_postgres(sql), parameters)
            return cursor.rowcount


def _postgres(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


# What is created last.
_UP_TO_DATE_POSTGRES: Final = "SELECT to_regclass('reflexion_ledger_reply') IS NOT NULL AS there"
_CREATE_POSTGRES: Final = (
    """
    CREATE TABLE IF NOT EXISTS reflexion_ledger (
        id text PRIMARY KEY, run_id text NOT NULL, thread_id text NOT NULL, batch_id text NOT NULL,
        started_at double precision NOT NULL, outcome text NOT NULL, line jsonb NOT NULL
    )
    """,
    "ALTER TABLE reflexion_ledger ADD COLUMN IF NOT EXISTS reply text",
    *_INDEXES,
)
# For this transaction alone, no wait for the disk: as in SQLite, a killed process loses nothing, a machine without
# power the last moments.
_WRITE_POSTGRES: Final = f"""
INSERT INTO reflexion_ledger (id, {", ".join(_COLUMNS)}, line, reply)
SELECT line->>'id', line->>'run_id', line->>'thread_id', line->>'batch_id',
    (line->>'started_at')::double precision, line->>'outcome', line, reply
FROM jsonb_to_recordset(?::jsonb) AS written(line jsonb, reply text), set_config('synchronous_commit', 'off', true)
{_REPLACE}
"""  # noqa: S608 - own names
_LOSE_POSTGRES: Final = f"""
UPDATE reflexion_ledger SET outcome = '{LOST}', line = jsonb_set(line, '{{outcome}}', '"{LOST}"')
WHERE run_id = ? AND outcome = '{PENDING}'
"""  # noqa: S608 - constants
