"""Keeps verdicts in a file as they come, so that none is paid for again."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self, TextIO

from pydantic import TypeAdapter, ValidationError

from reflexion.nodes import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an evaluator said of one example."""

    id: str
    key: str
    """Names what was judged and by what; see `VerdictFile`."""
    truth: bool
    score: float | None
    """0..1; None where there was no verdict."""
    passed: bool
    feedback: str
    evaluator: str
    advisory: bool
    """The score is not grounded; see `Evaluation`."""
    duration_s: float


_READER: TypeAdapter[Verdict] = TypeAdapter(Verdict)


class VerdictFile:
    """A JSONL file of verdicts, or nothing where no path is given. A line is whole once `add` returns.

    Verdicts are found again by `key`: where task, answer or evaluator are others, so is the key.
    """

    def __init__(self, path: Path | None) -> None:
        """Read what the file holds; a last line that was cut off is dropped.

        Raises:
            ConfigurationError: it cannot be read or written, or holds something else.
        """
        self._path = path
        self._found: dict[str, Verdict] = {}
        self._file: TextIO | None = None
        if path is None:
            return
        try:
            whole, _, rest = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
            for number, line in enumerate(whole.splitlines(), start=1):
                self._read(number, line)
            self._file = path.open("a", encoding="utf-8")
            if rest:
                self._file.truncate(path.stat().st_size - len(rest))
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be written: {error}") from error

    def get(self, key: str) -> Verdict | None:
        """The verdict that the file has under a key."""
        return self._found.get(key)

    def add(self, verdict: Verdict) -> None:
        """Append a verdict.

        Raises:
            ConfigurationError: it cannot be written.
        """
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise ConfigurationError(f"{self._path}: cannot be written: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self, number: int, line: bytes) -> None:
        try:
            verdict = _READER.validate_json(line)
        except ValidationError as error:
            raise ConfigurationError(
                f"{self._path}: line {number} is no verdict of a calibration: name another file, or remove this one"
            ) from error
        self._found[verdict.key] = verdict
