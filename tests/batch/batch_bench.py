"""What the tests of batches share."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reflexion.batch import Record
from reflexion.graphs import Reflexion, Settings, open_reflexion
from reflexion.models import ConnectionSettings
from reflexion.testing import FakeOpenAI


def task(number: int, **fields: Any) -> dict[str, Any]:
    """A task that the server of `BatchBench` answers rightly."""
    return {"id": f"t{number}", "task": f"Name number {number}.", "expect": f"{number}."} | fields


def number_in(body: dict[str, Any]) -> int:
    """Which task a request is about."""
    found = re.search(r"Name number (\d+)\.", json.dumps(body["messages"]))
    assert found is not None
    return int(found[1])


@dataclass
class BatchBench:
    """A server whose model names the number that it is asked for, files, and agents."""

    server: FakeOpenAI
    folder: Path
    replies: dict[int, Any] = field(default_factory=dict)
    """By number, what is replied instead."""

    def __post_init__(self) -> None:
        self.server.default("m", self.reply)
        self.server.default("reflector-m", {"improvement": "Look it up."})
        self.server.default("planner-m", "1. Look it up.")

    def reply(self, body: dict[str, Any]) -> Any:
        number = number_in(body)
        return self.replies.get(number, f"Answer: {number}.")

    @property
    def out(self) -> Path:
        return self.folder / "out.jsonl"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'reflexion.sqlite'}"

    def agent(self, url: str | None = None, *, connection: dict[str, Any] | None = None, **settings: Any) -> Reflexion:
        usual = {"model": "m", "reflector_model": "reflector-m", "planner_model": "planner-m"}
        usual |= {"max_attempts": 1, "memory": False}
        values = {"base_url": self.server.base_url, "api_key": "any", "max_retries": 0}
        return open_reflexion(
            Settings(**usual | settings),
            connection=ConnectionSettings(**values | (connection or {})),
            database_url=url or self.url,
        )

    def file(self, *lines: Any, name: str = "in.jsonl") -> Path:
        """A file with a line for each: an object as JSON, a text or bytes as they are."""
        path = self.folder / name
        path.write_bytes(b"".join(as_line(line) + b"\n" for line in lines))
        return path

    def numbers_asked(self) -> Counter[int]:
        """How often each task has reached the actor's model."""
        return Counter(number_in(request.body) for request in self.server.requests_for("m"))

    def written(self) -> list[dict[str, Any]]:
        """The file of records."""
        return [json.loads(line) for line in self.out.read_text(encoding="utf-8").splitlines()]


def as_line(line: Any) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


async def run(batch: Any) -> list[Record]:
    """All records, in the order in which they come."""
    async with batch:
        return [record async for record in batch]


def statuses(records: list[Record]) -> dict[str, str]:
    return {record.id: record.status for record in records}


class Events(list[dict[str, Any]]):
    """A listener that keeps what it was told."""

    def __call__(self, event: dict[str, Any]) -> None:
        self.append(event)

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self if event["event"] == name]
