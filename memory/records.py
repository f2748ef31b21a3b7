"""What is remembered, as plain JSON: a thread's own reflections, lessons, and what became of them in each run."""

import hashlib
import re
from collections.abc import Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict

KEPT_REFLECTIONS = 20
"""A thread keeps its last so many: enough to draw on, and its state stops growing."""


LONGEST_TASK = 4_000
"""Characters of a task that are remembered: twenty reflections lie in every checkpoint of their thread."""

LONGEST_VERDICT = 400
"""Characters of an evaluator's verdict that are kept as evidence."""

Outcome = Literal["helped", "hurt", "neither"]
Operation = Literal["ADD", "EDIT", "MERGE", "RETIRE"]
State = Literal["candidate", "active", "quarantined", "retired"]


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


class Evidence(TypedDict):
    """Why a run came to a lesson."""

    thread_id: str
    attempt: int
    """Number of the attempt that failed."""
    text: str
    """The run's own words, which may differ a little from the lesson's."""
    evaluator: str
    verdict: str
    """What the evaluator said of the attempt, its first `LONGEST_VERDICT` characters."""
    confirmed: bool
    """The attempt right after it passed."""


class Use(TypedDict):
    """What a run that was given a lesson made of it."""

    passed: bool
    """At its first attempt, the one whose prompt held this lesson and nothing that the run itself had learned."""
    expected: float
    """The chance of that, 0..1, by the runs of the same task that used no lesson."""
    outcome: Outcome
    replaced_by: str
    """The lesson that this run came to instead, and that then passed; empty for none."""


class Carried(TypedDict):
    """Why a run came to a lesson that another one took the place of."""

    run_id: str
    at: float
    evidence: Evidence


class Decision(TypedDict):
    """What was decided about a lesson apart from any run."""

    operation: Operation
    why: str
    retires: bool
    """It takes this lesson out of use; else it has made it."""
    replaced_by: str
    """The lesson that takes this one's place; empty for none."""
    of: list[str]
    """The lessons that it was made of."""
    carried: list[Carried]
    """What the lessons rest on that this one takes the place of."""


class Experience(TypedDict):
    """What one run has to do with one lesson; written once, by that run alone, so that nothing is counted twice."""

    lesson_id: str
    run_id: str
    at: float
    evidence: Evidence | None
    """It came to the lesson."""
    use: Use | None
    """It was given the lesson."""
    decision: NotRequired[Decision | None]
    """It was no run but a decision about lessons."""


class Earlier(TypedDict):
    """What a lesson of the form before experiences had counted."""

    seen: int
    used: int
    helped: int
    experience: Experience


class Lesson(TypedDict):
    """A rule for a task, as the store keeps it: never changed, so that no run can overwrite what another one counts."""

    id: str
    """`task_key`, a hyphen, and a digest of task and text."""
    task: str
    """Its first `LONGEST_TASK` characters."""
    task_key: str
    text: str
    created_at: float
    earlier: Earlier | None


class Episode(TypedDict):
    """How a run went: written once, at its end."""

    run_id: str
    thread_id: str
    task: str
    """Its first 200 characters."""
    task_key: str
    scores: list[float | None]
    """Of the attempts, 0..1; None where there was no verdict."""
    first_passed: bool | None
    """Of the first attempt; None without a verdict that rests on more than an opinion."""
    passed: bool
    stop_reason: str
    cost_usd: str | None
    """None where a price is unknown."""
    lessons_used: list[str]
    lessons_withheld: list[str]
    """Would have been used, had this run not been one of those that measure what memory does."""
    lessons_learned: list[str]
    at: float


class RecalledLesson(TypedDict):
    """A lesson as a run uses it."""

    id: str
    text: str
    similarity: float
    """Likeness of the tasks, 0..1."""
    state: State
    explored: bool
    """It is on trial in place of the best one."""


def merge_reflections(old: Sequence[Reflection] | None, new: Sequence[Reflection] | None) -> list[Reflection]:
    """The reducer of a thread's reflections: by id, so that a repeated step adds nothing; the last ones stay."""
    merged = {reflection["id"]: reflection for reflection in [*(old or ()), *(new or ())]}
    return list(merged.values())[-KEPT_REFLECTIONS:]


def task_key(task: str) -> str:
    """The identity of a task: its words, whatever the spacing and case, as far as they are remembered."""
    return _digest(_folded(task[:LONGEST_TASK]))


def make_lesson(task: str, text: str, created_at: float) -> Lesson:
    """A lesson; its identity is its task and its words, whatever the spacing and case."""
    task = task[:LONGEST_TASK]
    key = task_key(task)
    digest = _digest(f"{_folded(task)}\n{_folded(text)}")
    return Lesson(id=f"{key}-{digest}", task=task, task_key=key, text=text, created_at=created_at, earlier=None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _folded(text: str) -> str:
    return re.sub(r"\W+", " ", text.casefold()).strip()
