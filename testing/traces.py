"""What a LangSmith server makes of the requests that it gets: runs put together from their parts, and feedback."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Literal, TypeAlias

Operation = Literal["post", "patch"]
Tree: TypeAlias = "list[tuple[str, Tree]]"
"""Names of runs in the order of their start, each with those below it."""


@dataclass(frozen=True)
class TracedRun:
    """One run as it stands by now, its `post` and its `patch` merged."""

    id: str
    fields: dict[str, Any]
    """Everything that was sent, under LangSmith's own names."""

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def name(self) -> str:
        """What the tree shows."""
        return str(self.fields.get("name") or "")

    @property
    def run_type(self) -> str:
        """`chain`, `llm`, `tool` and so on."""
        return str(self.fields.get("run_type") or "")

    @property
    def parent_id(self) -> str | None:
        """None for a root."""
        return self.fields.get("parent_run_id")

    @property
    def trace_id(self) -> str:
        """The id of its tree's root."""
        return str(self.fields.get("trace_id") or self.id)

    @property
    def inputs(self) -> dict[str, Any]:
        """What it was given."""
        return self.fields.get("inputs") or {}

    @property
    def outputs(self) -> dict[str, Any]:
        """What it gave back; empty while it works, or after an error."""
        return self.fields.get("outputs") or {}

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata, token usage and cost among them."""
        found: dict[str, Any] = (self.fields.get("extra") or {}).get("metadata") or {}
        return found

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens and cost as LangSmith shows them."""
        found: dict[str, Any] = self.metadata.get("usage_metadata") or {}
        return found

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return self.fields.get("tags") or []

    @property
    def error(self) -> str | None:
        """Why it failed, with the traceback."""
        return self.fields.get("error")

    @property
    def pending(self) -> bool:
        """Whether LangSmith would show it as still at work."""
        return self.fields.get("end_time") is None


class Traces:
    """Takes what is posted and puts it together, in whichever order it comes."""

    def __init__(self) -> None:
        self._posted: dict[str, dict[str, Any]] = {}
        self._patched: dict[str, dict[str, Any]] = {}
        self._feedback: dict[str, dict[str, Any]] = {}

    def take_run(self, operation: Operation, fields: dict[str, Any]) -> None:
        """Take one run, or a part of it; `fields` holds its `id`."""
        kept = self._posted if operation == "post" else self._patched
        new = {name: value for name, value in fields.items() if value is not None}
        kept[str(fields["id"])] = kept.get(str(fields["id"]), {}) | new

    def take_feedback(self, feedback: dict[str, Any]) -> None:
        """Take one piece of feedback; another one with the same id takes its place."""
        self._feedback[str(feedback["id"])] = feedback

    def take_multipart(self, content_type: str, body: bytes) -> None:
        """Take the parts of `POST /runs/multipart`: `post.ID`, `patch.ID.outputs`, `feedback.ID` and the like."""
        for name, value in _parts(content_type, body):
            operation, _, rest = name.partition(".")
            run_id, _, part = rest.partition(".")
            match operation:
                case "post" | "patch":
                    self.take_run(operation, {"id": run_id, part: value} if part else value)
                case "feedback":
                    self.take_feedback(value)

    @property
    def runs(self) -> list[TracedRun]:
        """Every run so far, parents before their children, in the order of their start."""
        ids = list({**self._posted, **self._patched})
        runs = [TracedRun(run_id, {**self._posted.get(run_id, {}), **self._patched.get(run_id, {})}) for run_id in ids]
        return sorted(runs, key=lambda run: str(run.fields.get("dotted_order") or ""))

    @property
    def feedback(self) -> list[dict[str, Any]]:
        """Every piece of feedback so far, by id, in the order of its first arrival."""
        return list(self._feedback.values())


def tree_of(runs: Iterable[TracedRun]) -> Tree:
    """The runs as nested names; one whose parent never came stands at the top."""
    listed = list(runs)
    known = {run.id for run in listed}

    def below(parent: str | None) -> Tree:
        return [
            (run.name, below(run.id)) for run in listed if (run.parent_id if run.parent_id in known else None) == parent
        ]

    return below(None)


def _parts(content_type: str, body: bytes) -> Iterator[tuple[str, Any]]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        yield name, json.loads(payload) if part.get_content_type() == "application/json" else payload
