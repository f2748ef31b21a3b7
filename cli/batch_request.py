"""What `reflexion batch` was asked for, and what is wrong with it before anything is opened."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from reflexion.batch import BatchError

_FORM = 'one JSON object a line is needed, such as {"id": "1", "task": "2 + 2?", "expect": "4"}'
_KINDS = {
    b"\x1f\x8b": "is compressed: unpack it first, with gunzip",
    b"PK\x03\x04": "is compressed: unpack it first, with unzip",
    b"\x28\xb5\x2f\xfd": "is compressed: unpack it first, with unzstd",
    b"\xff\xfe": "is UTF-16: write it as UTF-8",
    b"\xfe\xff": "is UTF-16: write it as UTF-8",
    b"[": f"holds one JSON array: {_FORM}",
}
"""What a file that holds no tasks may begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    tasks: str | None
    out: Path
    dataset: str | None
    experiment: str | None
    engine: str
    options: dict[str, Any]
    """Of `run_batch`."""
    settings: dict[str, Any]
    installation: dict[str, Any]
    what_if: list[str]
    as_json: bool
    quiet: bool

    def check(self) -> None:
        """Refuse what cannot go together.

        Raises:
            BatchError: it cannot.
        """
        if (self.tasks is None) == (self.dataset is None):
            raise BatchError("tasks: give either a file (- for stdin) or --dataset NAME")
        if self.experiment and not self.dataset:
            raise BatchError("--experiment: belongs to a dataset: give --dataset NAME too")
        if self.tasks not in {None, "-"}:
            _check_file(Path(self.tasks or ""), self.out)

    def source(self) -> Path | BinaryIO:
        """Where the tasks come from, if not from a dataset."""
        return sys.stdin.buffer if self.tasks == "-" else Path(self.tasks or "")


def _check_file(tasks: Path, out: Path) -> None:
    """A file that is none of tasks costs one line, and not one for each of its own."""
    try:
        if tasks.is_dir():
            raise BatchError(f"{tasks}: is a folder: name a file of tasks")
        if not tasks.is_file():
            if not tasks.exists():
                raise BatchError(f"{tasks}: there is no such file")
            return  # a pipe: what was read of it is gone
        if out.exists() and out.samefile(tasks):
            raise BatchError(f"--out {out}: is the file of the tasks: write the results to another one")
        with tasks.open("rb") as file:
            start = file.read(64 * 1024).lstrip()
    except OSError as error:
        raise BatchError(f"{tasks}: cannot be read: {error.strerror or error}") from error
    if not start:
        raise BatchError(f"{tasks}: holds no tasks: {_FORM}")
    for beginning, words in _KINDS.items():
        if start.startswith(beginning):
            raise BatchError(f"{tasks}: {words}")
    if b"\0" in start:
        raise BatchError(f"{tasks}: is no text: {_FORM}")
