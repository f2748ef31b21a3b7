"""A task of a batch, and what may be wrong with the line that holds it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from reflexion.nodes import ConfigurationError, Settings, explain, make_settings
from reflexion.nodes.plain import plain
from reflexion.nodes.recall import read_task

HIGHEST_PRIORITY = 100
LONGEST_ID = 200
"""Characters."""
_FORM = 'one JSON object a line is needed, such as {"id": "1", "task": "2 + 2?", "expect": "4"}'
_SHOWN = 300
"""Characters of an error that a record keeps of what was given."""


class Task(BaseModel):
    """One task. In a file one JSON object a line with these fields; all but `task` may be missing or null."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(default="", max_length=LONGEST_ID)
    """Names it in the results; without one, `line-7` by the number of its line."""
    task: str
    """What is asked for."""
    tests: str = ""
    expect: Any = None
    criteria: tuple[str, ...] = ()
    priority: int = Field(default=0, ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, strict=True)
    """Higher goes first, as far as the batch has read; see `Queue`."""
    context: dict[str, Any] = Field(default_factory=dict)
    """Fields of `Settings` for this task alone."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, Mapping) else data

    @field_validator("id", mode="before")
    @classmethod
    def _number_as_id(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("criteria", mode="before")
    @classmethod
    def _one_criterion(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def fingerprint(self) -> str:
        """The same for what would be worked on alike: all but id and priority."""
        asked = self.model_dump(mode="json", exclude={"id", "priority"})
        return _digest(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A task and where it stands."""

    line: int
    """From 1."""
    task: Task
    fingerprint: str
    size: int
    """Bytes of its line, as a measure of what it takes in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that is no task."""

    line: int
    id: str
    """Its own where that could be read, else `line-7`."""
    error: str
    fingerprint: str


def line_id(number: int) -> str:
    """The id of what has none of its own."""
    return f"line-{number}"


def read_line(line: bytes, number: int, settings: Settings) -> Numbered | BadLine:
    """The task of a line.

    Args:
        line: without its end.
        number: from 1.
        settings: those that its `context` changes.
    """
    fingerprint = _digest(line)
    try:
        data = json.loads(line.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        text = f"is not UTF-8 at byte {error.start + 1}: write the file as UTF-8"
        return BadLine(line=number, id=line_id(number), error=text, fingerprint=fingerprint)
    except (ValueError, RecursionError) as error:
        text = f"is not JSON ({error}): {_FORM}"
        return BadLine(line=number, id=line_id(number), error=text, fingerprint=fingerprint)
    return read_object(data, number, settings, size=len(line), fingerprint=fingerprint)


def read_object(
    data: Any, number: int, settings: Settings, *, size: int = 0, fingerprint: str = ""
) -> Numbered | BadLine:
    """As `read_line`, from what the line says: a task, an object with its fields, or a text that is the task."""
    if isinstance(data, str) and not fingerprint:
        data = {"task": data}
    own = data.get("id") if isinstance(data, Mapping) else None
    named = isinstance(own, str) and own.strip() and len(own) <= LONGEST_ID
    name = own if named else line_id(number)
    try:
        task = data if isinstance(data, Task) else _task(data)
        _check(task, settings)
    except ConfigurationError as error:
        return BadLine(
            line=number,
            id=plain(str(name)),
            error=plain(str(error)),
            fingerprint=fingerprint or _digest(repr(data).encode()),
        )
    if not task.id.strip():
        task = task.model_copy(update={"id": line_id(number)})
    return Numbered(line=number, task=task, fingerprint=task.fingerprint, size=size or len(task.task) + len(task.tests))


def _task(data: Any) -> Task:
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"is no object: {_FORM}")
    if unknown := sorted(str(name) for name in data if name not in Task.model_fields):
        fields = ", ".join(Task.model_fields)
        raise ConfigurationError(
            f"{unknown[0][:_SHOWN]!r} is no field of a task: take it out; there are {fields}"
            + (", and what is meant for Settings goes into context" if unknown[0] in Settings.model_fields else "")
        )
    if data.get("task") is None:
        raise ConfigurationError(f"task missing: {_FORM}")
    try:
        return Task.model_validate(plain(dict(data)))
    except ValidationError as error:
        raise ConfigurationError(explain(error)[:_SHOWN]) from None


def _check(task: Task, settings: Settings) -> None:
    """Refuse what could not be run, before anything is paid for."""
    own = make_settings(settings, **task.context)
    if own.review != "off":
        raise ConfigurationError("context: review: nobody is there to review the tasks of a batch")
    given = {"task": task.task, "tests": task.tests, "expect": task.expect, "criteria": list(task.criteria)}
    read_task(given)  # type: ignore[arg-type]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
