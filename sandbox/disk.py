"""The folder of a run: how much it holds, which no resource limit bounds, and its removal, however deep it is."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ENTRIES = 1_000
"""Files and folders beyond which the count stops, as too many in themselves."""


def holds_more_than(folder: str, limit_bytes: int) -> bool:
    """Whether a folder holds more bytes than the limit, or too many files to count."""
    pending, entries, size = [folder], 0, 0
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as listed:
            for entry in listed:
                entries += 1
                with suppress(OSError):
                    # Blocks, not length: a file with a hole in it takes no space.
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entries > _ENTRIES or size > limit_bytes:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return False


@contextmanager
def folder_of_a_run() -> Iterator[str]:
    """Make a folder for code that nobody trusts, and remove it with all that the code has left there.

    `TemporaryDirectory` goes down level by level and is out of stack or open files where code has made thousands.
    """
    folder = tempfile.mkdtemp(prefix="reflexion-")
    try:
        yield folder
    finally:
        if os.name == "posix":
            with suppress(OSError):
                _empty(folder)
                Path(folder).rmdir()
        else:  # where no code that nobody trusts runs
            shutil.rmtree(folder, ignore_errors=True)


def _empty(folder: str) -> None:
    """Remove all that a folder holds; one folder is open at a time, and on the way up each is recognised."""
    here = _opened(folder)
    left = _names_in(here)
    above: list[tuple[str, list[str], os.stat_result]] = []
    try:
        while left or above:
            if left:
                name = left.pop()
                if _is_unlinked(name, here):
                    continue
                try:
                    there = _opened(name, here)
                except OSError:
                    continue
                above.append((name, left, os.fstat(here)))
                left = _names_in(there)
            else:
                name, left, expected = above.pop()
                there = _opened("..", here)
                if not os.path.samestat(os.fstat(there), expected):  # somebody has moved what was open
                    os.close(there)
                    return
                with suppress(OSError):
                    os.rmdir(name, dir_fd=there)
            os.close(here)
            here = there
    finally:
        os.close(here)


def _names_in(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _opened(name: str, folder: int | None = None) -> int:
    """Open a folder so that it can be listed and emptied, also where its mode forbids that to its owner."""
    how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        opened = os.open(name, how, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        opened = os.open(name, how, dir_fd=folder)
    if os.fstat(opened).st_mode & 0o700 != 0o700:
        with suppress(OSError):
            os.fchmod(opened, 0o700)
    return opened


def _is_unlinked(name: str, folder: int) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:  # a folder, most likely
        return False
    return True
