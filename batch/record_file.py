"""The file of a batch's records: appended to, cut back after a crash, put in order at the end."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from reflexion.batch.errors import BatchError

JOURNAL_SUFFIX: Final = ".journal"


def not_ours(path: Path) -> BatchError:
    """What is said of a file that holds something, and is not known to be of a batch."""
    return BatchError(
        f"{path}: exists, and is not of a batch that could be gone on with (its journal {path.name}{JOURNAL_SUFFIX} is "
        "missing): write to another file, or move this one away"
    )


class RecordFile:
    """The file, open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.end = 0
        """The last byte that counts."""

    def cut(self, end: int, *, begun: bool) -> None:
        """Cut off what was not committed."""
        size = os.fstat(self._descriptor).st_size
        if size and not begun:
            raise not_ours(self._path)
        if size < end:
            raise BatchError(
                f"{self._path}: has lost records that its journal {self._path.name}{JOURNAL_SUFFIX} knows of ({size} "
                f"of {end} bytes are left): put it back, or move the journal away to begin anew"
            )
        os.truncate(self._descriptor, end)
        self.end = end

    def append(self, lines: Iterable[bytes]) -> list[tuple[int, int]]:
        """Write lines at the end, and return their offsets and lengths when they are on the disk."""
        places, data, offset = [], bytearray(), self.end
        for line in lines:
            places.append((offset, len(line)))
            data += line
            offset += len(line)
        self._write(self._descriptor, data, self.end)
        os.fsync(self._descriptor)
        self.end = offset
        return places

    @contextlib.contextmanager
    def aside(self) -> Iterator["Aside"]:
        """A file that is on the disk afterwards, and is then to take this one's place."""
        with _aside(self._path).open("wb") as file:
            yield Aside(self._descriptor, file)
            file.flush()
            os.fsync(file.fileno())

    def replace(self) -> None:
        """Put what was written aside in the file's place."""
        _aside(self._path).replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self.close()
        self._descriptor = os.open(self._path, os.O_RDWR)
        self.end = os.fstat(self._descriptor).st_size

    @staticmethod
    def is_aside(path: Path) -> bool:
        """Whether a file aside has not taken its place, because of a crash; it is deleted."""
        with contextlib.suppress(FileNotFoundError):
            _aside(path).unlink()
            return True
        return False

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    @staticmethod
    def _write(descriptor: int, data: bytes | bytearray, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written


class Aside:
    """Takes records over, one after the other."""

    def __init__(self, source: int, file: BinaryIO) -> None:
        self._source = source
        self._file = file
        self.end = 0

    def copy(self, line: int, offset: int, length: int) -> tuple[int, int]:
        """Take one over, with the line at which its task stands now; returns its new offset and length."""
        record = _AT_LINE.sub(b'{"line":%d' % line, os.pread(self._source, length, offset), count=1)
        self._file.write(record)
        self.end += len(record)
        return self.end - len(record), len(record)


_AT_LINE: Final = re.compile(rb'^\{"line":\d+')


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sorting")
