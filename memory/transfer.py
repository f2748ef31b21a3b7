"""Lessons as lines of JSON, to carry them from one memory to another."""

import json
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reflexion.memory.quality import concise, objection
from reflexion.memory.records import Evidence, Experience, Lesson, make_lesson
from reflexion.memory.worth import KnownLesson

NOWHERE = "import"
"""The run that a lesson came of, where its line names none."""


class TransferError(ValueError):
    """Lines that hold no lessons: which line, and what is wrong with it."""


class _Origin(BaseModel):
    model_config = ConfigDict(extra="ignore")

    run_id: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]
    thread_id: str = ""
    attempt: int = 1
    evaluator: str = ""
    verdict: str = ""
    text: str = ""
    at: Annotated[float, Field(allow_inf_nan=False)] = 0.0


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    task: Annotated[str, Field(min_length=1)]
    text: Annotated[str, Field(min_length=1)]
    created_at: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    evidence: list[_Origin] = []


def as_line(known: KnownLesson) -> str:
    """A lesson and all that is known of it, on one line."""
    return json.dumps(known.as_json(), ensure_ascii=False)


def read_lines(lines: Iterable[str]) -> list[tuple[Lesson, list[Experience]]]:
    """The lessons of lines that `as_line` has made, or of any that have `task` and `text`.

    They have yet to prove themselves: what confirmed them and how they were used elsewhere is left out, and where they
    came from is kept.

    Raises:
        TransferError: a line holds no lesson, or one that no run would be allowed to leave.
    """
    return [_read(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read(number: int, line: str) -> tuple[Lesson, list[Experience]]:
    try:
        read = _Line.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise TransferError(f"line {number}: {where + ': ' if where else ''}{problem['msg']}") from error
    text = concise(read.text)
    if why := objection(text, ""):
        raise TransferError(f"line {number}: no lesson: {why}")
    lesson = make_lesson(read.task, text, read.created_at)
    return lesson, [_experience(lesson, origin) for origin in read.evidence or [_Origin(run_id=NOWHERE)]]


def _experience(lesson: Lesson, origin: _Origin) -> Experience:
    evidence = Evidence(
        thread_id=origin.thread_id,
        attempt=origin.attempt,
        text=origin.text or lesson["text"],
        evaluator=origin.evaluator,
        verdict=origin.verdict,
        confirmed=False,
    )
    return Experience(lesson_id=lesson["id"], run_id=origin.run_id, at=origin.at, evidence=evidence, use=None)
