"""The results of a batch on disk, in a form that no crash tears: one file of records, and a journal that knows it.

A record is appended to OUT.jsonl first and then committed in OUT.jsonl.journal, with its place. Whatever stands behind
the last committed byte is cut off when the batch goes on, so a torn line, or one that nobody knows, cannot stay. Which
tasks are finished is looked up in the journal and never held in memory.
"""

import contextlib
import json
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reflexion.batch.errors import BatchBusy, BatchChanged, BatchError
from reflexion.batch.record_file import JOURNAL_SUFFIX, RecordFile, not_ours
from reflexion.batch.records import FAILED, STATUSES, Record, Status
from reflexion.batch.tasks import BadLine, Numbered
from reflexion.nodes import Settings

_SETTLED_AT_ONCE: Final = 1000
_SHOWN = 60
"""Characters of a setting that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be done, or to be recorded as a bad line."""

    item: Numbered | BadLine
    before: Status | None = None
    """Of its last record; None where there is none."""
    tries: int = 0
    """How often it was finished before."""


class Journal:
    """What is finished, and where its record stands. For one thread at a time, whichever that is."""

    def __init__(self, out: Path | None, *, retry: bool = False, accept_changes: bool = False) -> None:
        """Open the results, or begin them.

        Args:
            out: the file of records; None for a journal that keeps nothing but which ids were given.
            retry: whether what has failed before is due again.
            accept_changes: whether other settings, and tasks with another text, are taken instead of refused.

        Raises:
            BatchBusy: another process works on them.
            BatchError: they cannot be used.
        """
        self._retry = retry
        self._accept = accept_changes
        self._guard = threading.Lock()
        self._records: RecordFile | None = None
        self._begun = False
        self._stack = contextlib.ExitStack()
        # The empty name is a database that SQLite keeps in memory as long as it is small, and then in a nameless file.
        self.path = None if out is None else _place(out)
        name = "" if self.path is None else f"{self.path}{JOURNAL_SUFFIX}"
        with contextlib.ExitStack() as opening:
            try:
                self._db = sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=0)
                opening.callback(self._db.close)
                for statement in _SETUP:
                    self._db.execute(statement)
                if self.path is not None:
                    self._records = RecordFile(self.path)
                    opening.callback(self._records.close)
                    self._begun = bool(self._kept("begun", 0))
                    self._records.cut(self._recovered(), begun=self._begun)
                    self._keep("begun", 1)
            except (OSError, sqlite3.Error) as error:
                raise _explained(self.path, error) from error
            self.batch_id = self._kept("batch_id", uuid.uuid4().hex)
            self.counts = self._counted()
            (self.bad_lines,) = self._db.execute("SELECT count(*) FROM tasks WHERE bad > 0").fetchone()
            self._round = self._begin_round()
            self._stack = opening.pop_all()

    @property
    def begun_before(self) -> bool:
        """Whether a process has worked on it before."""
        return self._begun

    def check(self, settings: Settings) -> None:
        """Compare the settings with those that the batch was begun with, and keep them.

        Raises:
            BatchChanged: they are others, there are results that rest on the old ones, and that is not accepted.
        """
        now = settings.model_dump(mode="json")
        before = json.loads(self._kept("settings", json.dumps(now, sort_keys=True)))
        changed = [name for name in sorted({*now, *before}) if now.get(name) != before.get(name)]
        if not changed:
            return
        rests_on_them = any(self.counts[status] for status in STATUSES if status not in {"error", "not_run"})
        if rests_on_them and not self._accept:
            said = "; ".join(f"{name} was {_shown(before.get(name))}, now {_shown(now.get(name))}" for name in changed)
            raise BatchChanged(
                f"{self.path}: was begun with other settings: {said}. Give the old ones again, or accept the changes "
                "for the tasks that are left (--accept-changes), or write to another file"
            )
        self._keep("settings", json.dumps(now, sort_keys=True))

    def due(self, items: Sequence[Numbered | BadLine]) -> list[Due]:
        """Which of these are not finished. An id that was given before in the same input makes a bad line.

        Raises:
            BatchChanged: a finished task has another text now, and that is not accepted.
        """
        with self._guard, self._transaction():
            found = [self._one(item) for item in items]
        return [due for due in found if due is not None]

    def add(self, finished: Sequence[tuple[Record, Due]]) -> None:
        """Write records, and return when they are safe.

        Raises:
            BatchError: they cannot be written.
        """
        with self._guard:
            for record, due in finished:
                if due.before:
                    self.counts[due.before] -= 1
                self.counts[record.status] += 1
                self.bad_lines += _bad(due.item) > 0 and not due.before
            if self._records is None:
                return
            try:
                places = self._records.append(record.as_line() for record, _ in finished)
                with self._transaction():
                    self._db.executemany(
                        _WRITE,
                        [self._row(record, due, *place) for (record, due), place in zip(finished, places, strict=True)],
                    )
                    self._keep("end", self._records.end)
            except (OSError, sqlite3.Error) as error:
                raise _explained(self.path, error) from error

    def places(self) -> Iterator[tuple[int, int]]:
        """Offset and length of each task's record, in the order of the file."""
        with self._guard:
            yield from self._db.execute("SELECT offset, length FROM tasks ORDER BY offset")

    def settle(self) -> None:
        """Put the records in the order of the input, each task's last one only; whole or not at all."""
        if self._records is None:
            return
        with self._guard:
            try:
                self._settle(self._records)
            except (OSError, sqlite3.Error) as error:
                raise _explained(self.path, error) from error

    def complete(self) -> None:
        """Note that the input was worked through: the next request to retry begins a new round."""
        self._keep("round_open", 0)

    def close(self) -> None:
        """Let go of the files."""
        with self._guard:
            self._stack.close()

    def _row(self, record: Record, due: Due, offset: int, length: int) -> tuple[Any, ...]:
        where = (record.id, _bad(due.item), record.line, record.status, due.item.fingerprint, offset, length)
        return (*where, due.tries + record.ended, self._round)

    def _one(self, item: Numbered | BadLine) -> Due | None:
        if isinstance(item, Numbered):
            first = self._first_line(item.task.id, item.line)
            if first is not None:
                text = f"the id {item.task.id!r} is that of line {first} already: each task needs its own, or none"
                item = BadLine(line=item.line, id=item.task.id, error=text, fingerprint=item.fingerprint + text)
        name = item.task.id if isinstance(item, Numbered) else item.id
        bad = _bad(item)
        if not bad and self.counts["error"]:
            # What was no task when the line was last read is replaced by what it is now.
            mended = self._db.execute("DELETE FROM tasks WHERE bad = ? AND bad > 0", (item.line,)).rowcount
            self.counts["error"] -= mended
            self.bad_lines -= mended
        row = self._db.execute(_FIND, (name, bad)).fetchone()
        if row is None:
            return Due(item=item)
        line, status, fingerprint, tries, round_ = row
        if line != item.line:
            self._db.execute("UPDATE tasks SET line = ? WHERE id = ? AND bad = ?", (item.line, name, bad))
        if fingerprint != item.fingerprint and not bad and status != "not_run":
            if not self._accept:
                raise BatchChanged(
                    f"line {item.line}: the task {name!r} was finished with another text, tests or settings of its "
                    "own: give the new one another id, or accept the change, which runs it again (--accept-changes)"
                )
            return Due(item=item, before=status, tries=tries)
        again = status == "not_run" or (self._retry and status in FAILED and round_ < self._round and not bad)
        return Due(item=item, before=status, tries=tries) if again or fingerprint != item.fingerprint else None

    def _first_line(self, name: str, line: int) -> int | None:
        """Where the id was given before in this input; None where it was not."""
        if self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (name, line)).rowcount:
            return None
        (first,) = self._db.execute("SELECT line FROM seen WHERE id = ?", (name,)).fetchone()
        return int(first)

    def _begin_round(self) -> int:
        """The number of this round of retries; one that was broken off goes on."""
        number = int(self._kept("round", 0))
        if self._retry and not int(self._kept("round_open", 0)):
            number += 1
            with self._transaction():
                self._keep("round", number)
                self._keep("round_open", 1)
        return number

    def _counted(self) -> Counter[Status]:
        return Counter(dict(self._db.execute("SELECT status, count(*) FROM tasks GROUP BY status")))

    def _settle(self, records: RecordFile) -> None:
        rows = self._db.execute("SELECT line, offset, length, id, bad FROM tasks ORDER BY line, bad, id")
        with self._transaction(), records.aside() as aside:
            while some := rows.fetchmany(_SETTLED_AT_ONCE):
                places = [aside.copy(line, offset, length) for line, offset, length, _, _ in some]
                self._db.executemany(
                    "UPDATE tasks SET next_offset = ?, next_length = ? WHERE id = ? AND bad = ?",
                    [(*place, *row[3:]) for place, row in zip(places, some, strict=True)],
                )
            self._keep("settling", aside.end)
        records.replace()
        self._adopt(records.end)

    def _recovered(self) -> int:
        """The last committed byte, after a crash while the records were put in order too."""
        assert self.path is not None
        end = int(self._kept("settling", -1))
        if RecordFile.is_aside(self.path):
            self._keep("settling", -1)
        elif end >= 0:
            self._adopt(end)
        return int(self._kept("end", 0))

    def _adopt(self, end: int) -> None:
        with self._transaction():
            self._db.execute("UPDATE tasks SET offset = next_offset, length = next_length")
            self._keep("end", end)
            self._keep("settling", -1)

    def _kept(self, name: str, default: Any) -> Any:
        self._db.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, default))
        return self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()[0]

    def _keep(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


_SETUP: Final = (
    # Held as long as the connection is open, and freed by the system when the process dies.
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "BEGIN IMMEDIATE",
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value)",
    """
    CREATE TABLE IF NOT EXISTS tasks (
        id TEXT NOT NULL, bad INTEGER NOT NULL, line INTEGER NOT NULL, status TEXT NOT NULL, fingerprint TEXT NOT NULL,
        offset INTEGER NOT NULL, length INTEGER NOT NULL, tries INTEGER NOT NULL, round INTEGER NOT NULL,
        next_offset INTEGER, next_length INTEGER, PRIMARY KEY (id, bad)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX IF NOT EXISTS bad_lines ON tasks (bad) WHERE bad > 0",
    "CREATE TEMP TABLE seen (id TEXT PRIMARY KEY, line INTEGER) WITHOUT ROWID",
    "COMMIT",
)
_FIND: Final = "SELECT line, status, fingerprint, tries, round FROM tasks WHERE id = ? AND bad = ?"
_WRITE: Final = """
INSERT OR REPLACE INTO tasks (id, bad, line, status, fingerprint, offset, length, tries, round)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def _bad(item: Numbered | BadLine) -> int:
    """0 for a task; the number of a line that is none, as such lines may name a task's id."""
    return item.line if isinstance(item, BadLine) else 0


def _place(out: Path) -> Path:
    path = out.expanduser().resolve()
    if path.is_dir():
        raise BatchError(f"{path}: is a folder: name a file for the results")
    if not path.parent.is_dir():
        raise BatchError(f"{path}: there is no folder {path.parent}: create it first")
    # Before a journal is put beside it.
    if path.exists() and path.stat().st_size and not Path(f"{path}{JOURNAL_SUFFIX}").exists():
        raise not_ours(path)
    return path


def _explained(path: Path | None, error: Exception) -> BatchError:
    if "locked" in str(error):
        return BatchBusy(f"{path}: another process is at work on these results: wait for it, or write to another file")
    if "not a database" in str(error) or "malformed" in str(error):
        return BatchError(f"{path}{JOURNAL_SUFFIX}: is damaged ({error}): move it and {path} away to begin anew")
    return BatchError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
