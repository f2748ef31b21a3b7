"""Reads the records of a batch back, one at a time."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reflexion.batch.errors import BatchError
from reflexion.batch.journal import Journal
from reflexion.batch.record_file import JOURNAL_SUFFIX

_FIELDS = {"id", "status", "error", "attempts", "usage", "stop_reason"}


def stored_records(out: Path) -> Iterator[dict[str, Any]]:
    """The records in a file, as JSON, each task's last one.

    With the journal beside it, what a crash has torn or a retry has replaced is left out; a file that was taken away
    from its journal is read line by line.

    Raises:
        BatchError: the file cannot be read, or holds something else; another process is at work on it.
    """
    if not out.is_file():
        raise BatchError(f"{out}: there is no such file of results")
    lines = _journaled(out) if out.with_name(out.name + JOURNAL_SUFFIX).exists() else _plain(out)
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not record.keys() >= _FIELDS:
            raise BatchError(f"{out}: record {number} is none of a batch: give the file that --out has written")
        yield record


def _journaled(out: Path) -> Iterator[bytes]:
    with contextlib.closing(Journal(out)) as journal, out.open("rb") as file:
        for offset, length in journal.places():
            file.seek(offset)
            yield file.read(length)


def _plain(out: Path) -> Iterator[bytes]:
    try:
        with out.open("rb") as file:
            yield from filter(bytes.strip, file)
    except OSError as error:
        raise BatchError(f"{out}: cannot be read: {error.strerror or error}") from error
