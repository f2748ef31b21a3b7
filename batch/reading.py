"""Reads tasks as a stream, from a file, a pipe or an iterable, a chunk at a time."""

import asyncio
import contextlib
import itertools
import os
import stat
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Mapping, Sized
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from reflexion.batch.errors import BatchError
from reflexion.batch.tasks import BadLine, Numbered, Task, line_id, read_line, read_object
from reflexion.nodes import Settings

T = TypeVar("T")

Given = Task | Mapping[str, Any] | str
"""A task in Python: a `Task`, an object with its fields, or a text that is the task."""
Tasks = Path | BinaryIO | Iterable[Given] | AsyncIterable[Given]
"""A file, an open binary stream, or tasks. Path: of a file with one JSON object a line."""

Read = Numbered | BadLine

LONGEST_LINE = 16 * 2**20
"""Bytes."""
_BLOCK = 64 * 1024
_AT_ONCE = 100
"""Items that are taken from an iterable at once."""
_BOM = b"\xef\xbb\xbf"


class TaskReader:
    """A stream of tasks. Nothing of it is kept."""

    def __init__(self, tasks: Tasks, settings: Settings) -> None:
        """Open it.

        Args:
            tasks: see `Tasks`.
            settings: those that a task's `context` changes.

        Raises:
            BatchError: the file cannot be read.
        """
        self._settings = settings
        self._close: Callable[[], None] = lambda: None
        self.taken = 0
        """Lines that are not blank, or items, that have been read."""
        self.bytes_read = 0
        self.bytes_total: int | None = None
        """None where nobody knows: of a pipe, or of an iterable that has no length."""
        self.live = False
        """Whether more may come as time goes by."""
        self._chunks: AsyncIterator[list[Read]]
        if isinstance(tasks, Path):
            self._open(tasks)
        elif hasattr(tasks, "read"):
            self._of_stream(tasks)
        elif isinstance(tasks, AsyncIterable):
            self.live = True
            self._chunks = self._of_async(tasks)
        elif isinstance(tasks, Iterable) and not isinstance(tasks, str | bytes | Mapping):
            self._chunks = self._of_items(tasks)
        else:
            raise BatchError(f"tasks: {tasks!r} is none: give a pathlib.Path, an open binary file, or tasks")

    async def chunk(self) -> list[Read]:
        """What comes next; empty at the end."""
        return await anext(self._chunks, [])

    @property
    def expected(self) -> int | None:
        """How many there will be in all, as far as can be told from what has been read."""
        if self.bytes_total is None or not self.bytes_read:
            return None
        return max(self.taken, round(self.taken * self.bytes_total / self.bytes_read))

    def close(self) -> None:
        """Close the file that it has opened."""
        self._close()

    def _open(self, path: Path) -> None:
        try:
            stream = path.open("rb")
        except OSError as error:
            raise BatchError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._close = stream.close
        self._of_stream(stream)

    def _of_stream(self, stream: Any) -> None:
        with contextlib.suppress(OSError, AttributeError):
            about = os.fstat(stream.fileno())
            self.live = not stat.S_ISREG(about.st_mode)
            if not self.live:
                self.bytes_total = about.st_size
        self._chunks = self._of_lines(_lines(stream))

    async def _of_lines(
        self, lines: Generator[tuple[int, list[tuple[int, bytes | None]]]]
    ) -> AsyncIterator[list[Read]]:
        def step() -> tuple[int, list[Read]] | None:
            for size, numbered in lines:
                return size, [self._line(number, line) for number, line in numbered if line is None or line]
            return None

        while (found := await _in_thread(step)) is not None:
            size, read = found
            self.bytes_read += size
            self.taken += len(read)
            if read:
                yield read

    def _line(self, number: int, line: bytes | None) -> Read:
        if line is None:
            text = f"is longer than {LONGEST_LINE:,} bytes"
            return BadLine(line=number, id=line_id(number), error=text, fingerprint=text)
        return read_line(line, number, self._settings)

    async def _of_items(self, items: Iterable[Given]) -> AsyncIterator[list[Read]]:
        if isinstance(items, Sized):
            self.bytes_total = len(items)
        numbered = enumerate(items, start=1)
        while taken := list(itertools.islice(numbered, _AT_ONCE)):
            self.taken = self.bytes_read = taken[-1][0]
            yield [read_object(item, number, self._settings) for number, item in taken]
            await asyncio.sleep(0)

    async def _of_async(self, items: AsyncIterable[Given]) -> AsyncIterator[list[Read]]:
        async for item in items:
            self.taken += 1
            yield [read_object(item, self.taken, self._settings)]


def _lines(stream: BinaryIO) -> Generator[tuple[int, list[tuple[int, bytes | None]]]]:
    """Blocks as they come: their bytes, and the numbers and texts of the lines that end in them; None: too long."""
    read = getattr(stream, "read1", stream.read)
    number, rest, too_long = 0, b"", False
    while block := read(_BLOCK):
        *ended, rest_of_block = block.split(b"\n")
        if ended:
            ended[0], rest = rest + ended[0], rest_of_block
        else:
            rest += rest_of_block
        found: list[tuple[int, bytes | None]] = []
        for line in ended:
            number += 1
            found.append((number, None if too_long or len(line) > LONGEST_LINE else _stripped(line, number)))
            too_long = False
        if len(rest) > LONGEST_LINE:
            rest, too_long = b"", True
        yield len(block), found
    if rest or too_long:
        yield 0, [(number + 1, None if too_long else _stripped(rest, number + 1))]


def _stripped(line: bytes, number: int) -> bytes:
    return (line.removeprefix(_BOM) if number == 1 else line).strip()


async def _in_thread(work: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, in a thread that does not keep the process alive while it waits for a pipe."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(result) if error is None else done.set_exception(error)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - handed to whoever waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="reflexion-batch-reader", daemon=True).start()
    return await done
