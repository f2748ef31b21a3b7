"""What is kept of a task of a batch: one flat JSON object, of the same form whatever came of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, get_args

from reflexion.graphs.result import Result, RunUsage

Status = Literal["passed", "failed", "unscored", "error", "not_run"]
"""`unscored`: there is an answer, and no verdict on it. `error`: the line, the model or the run failed. `not_run`:
the batch ended before; what a half-done run has come to so far is in its record all the same."""

STATUSES: tuple[Status, ...] = get_args(Status)
FAILED: frozenset[Status] = frozenset({"failed", "unscored", "error"})
"""What is tried again on request only."""

_ERRORS = frozenset({"model_error", "refused"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What came of one task."""

    line: int
    """Where it stands in the input, from 1."""
    id: str
    status: Status
    error: str = ""
    """Why there is no verdict; empty where there is one."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """`Result.as_json()`; empty where there was no attempt."""

    @property
    def ended(self) -> bool:
        """Whether the task came to an end, whatever that was."""
        return self.status != "not_run"

    def as_json(self) -> dict[str, Any]:
        """One flat object, with the same fields and types for every status."""
        result = {**_EMPTY, **self.result}
        usage = result["usage"]
        cost = usage["cost_usd"]
        return {
            "line": self.line,
            "id": self.id,
            "status": self.status,
            "error": self.error,
            "attempts_made": len(result["attempts"]),
            "requests": usage["requests"],
            "tokens": usage["prompt_tokens"] + usage["completion_tokens"],
            "cost_usd": None if cost is None else float(cost),
            **result,
        }

    def as_line(self) -> bytes:
        """As a line of a file, its end included."""
        text = json.dumps(self.as_json(), ensure_ascii=False, separators=(",", ":"))
        # Some readers take these for ends of lines.
        for end in "\x85\u2028\u2029":
            text = text.replace(end, f"\\u{ord(end):04x}")
        return text.encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes | str) -> "Record":
        """The record that a line holds."""
        data = json.loads(line)
        result = {name: data[name] for name in _EMPTY} if data["thread_id"] else {}
        return cls(line=data["line"], id=data["id"], status=data["status"], error=data["error"], result=result)


def status_of(result: Mapping[str, Any]) -> tuple[Status, str]:
    """Status and error of a run, by its `Result.as_json()`."""
    reason, detail = result["stop_reason"], result["stop_detail"]
    if result["passed"]:
        return "passed", ""
    if reason in _ERRORS:
        return "error", detail
    if not result["attempts"]:
        return "error", detail
    if result["score"] is None:
        return "unscored", detail
    return "failed", ""


_EMPTY = Result(
    answer="",
    passed=False,
    score=None,
    stop_reason="cancelled",
    stop_detail="",
    thread_id="",
    run_id="",
    attempts=(),
    lessons_used=(),
    lessons_withheld=(),
    lessons_learned=(),
    usage=RunUsage(cost_usd=Decimal(0)),
    duration_s=0.0,
    latency_ms={"p50": None, "p95": None, "p99": None},
).as_json() | {"stop_reason": ""}
"""The fields of a result where there is none."""
