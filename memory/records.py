"""What is remembered: a thread's own reflections, and the lessons that threads share."""

import hashlib
import re
from collections.abc import Sequence

from typing_extensions import TypedDict

KEPT_REFLECTIONS = 20
"""A thread keeps its last so many: enough to draw on, and its state stops growing."""


LONGEST_TASK = 4_000
"""Characters of a task that are remembered: twenty reflections lie in every checkpoint of their thread."""


class Reflection(TypedDict):
    """What one failed attempt taught, as the thread's state keeps it: plain JSON."""

    id: str
    """The same however often the step is repeated after a crash."""
    run_id: str
    task: str
    """Its first `LONGEST_TASK` characters."""
    attempt: int
    text: str
    """One imperative sentence."""
    what_failed: str
    created_at: float
    """Seconds since 1970."""


class Lesson(TypedDict):
    """A reflection that later runs may use, as the store keeps it: plain JSON."""

    id: str
    task: str
    text: str
    evaluator: str
    thread_id: str
    run_id: str
    attempt: int
    confirmed: bool
    """The attempt right after it passed."""
    created_at: float
    last_seen_at: float
    times_seen: int
    """How often runs have come to the same lesson."""
    times_used: int
    times_helped: int
    """Runs that used it and passed."""
    credited_run: str
    """The last run that was counted, so that a repeated step counts nothing twice."""


class RecalledLesson(TypedDict):
    """A lesson as a run uses it."""

    id: str
    text: str
    similarity: float
    """Likeness of the tasks, 0..1."""


def merge_reflections(old: Sequence[Reflection] | None, new: Sequence[Reflection] | None) -> list[Reflection]:
    """The reducer of a thread's reflections: by id, so that a repeated step adds nothing; the last ones stay."""
    merged = {reflection["id"]: reflection for reflection in [*(old or ()), *(new or ())]}
    return list(merged.values())[-KEPT_REFLECTIONS:]


def lesson_id(task: str, text: str) -> str:
    """The identity of a lesson: its task and its words, whatever the spacing and case."""
    return hashlib.sha256(f"{_folded(task)}\n{_folded(text)}".encode()).hexdigest()[:16]


def as_lesson(reflection: Reflection, thread_id: str) -> Lesson:
    """The lesson that a reflection is, never seen before."""
    return Lesson(
        id=lesson_id(reflection["task"], reflection["text"]),
        task=reflection["task"],
        text=reflection["text"],
        evaluator="",
        thread_id=thread_id,
        run_id=reflection["run_id"],
        attempt=reflection["attempt"],
        confirmed=False,
        created_at=reflection["created_at"],
        last_seen_at=reflection["created_at"],
        times_seen=1,
        times_used=0,
        times_helped=0,
        credited_run="",
    )


def _folded(text: str) -> str:
    return re.sub(r"\W+", " ", text.casefold()).strip()
