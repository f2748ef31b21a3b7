"""Which lessons a run is given: those of the most similar tasks, the best of them first, now and then one on trial."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reflexion.memory.likeness import rank
from reflexion.memory.records import Experience, Lesson, RecalledLesson
from reflexion.memory.worth import KnownLesson

LEAST_LIKENESS = 0.45
"""Below it a lesson belongs to another task.

Chosen so that of 20 lessons of other tasks one reaches it in 10 % of the cases. Of tasks that are put a little
otherwise up to 5 % fall below it, and nearly all that share no words (`benchmarks/recall_quality.py`).
"""

CONSIDERED = 50
"""Lessons of the most similar tasks that are looked at more closely."""

AS_LIKE = 0.1
"""A lesson may be tried in place of another one when its task is no less similar than by this much.

Of 100 lessons, one of another task comes so near to the task's own in 8 % of the cases.
"""


TRIED_FIRST = 3
"""Uses of a lesson before chance has a say in it: until then every run that is given it is a trial already."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a run wants its lessons chosen."""

    run_id: str
    """Decides by chance, so that a run that is resumed decides as before."""
    limit: int = 1
    """Lessons at most."""
    explore: float = 0.0
    """Share of the runs, 0..1, in which a candidate takes the place of the last lesson chosen."""
    control: float = 0.0
    """Share of the runs, 0..1, that get no lesson."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a run is given, or, where it measures what memory does, what it would have been."""

    used: list[RecalledLesson] = field(default_factory=list)
    withheld: list[RecalledLesson] = field(default_factory=list)


def most_alike(task: str, lessons: Sequence[Lesson], limit: int = CONSIDERED) -> list[tuple[float, Lesson]]:
    """The lessons of the most similar tasks with that likeness, 0..1, at most `limit`, likest first.

    Takes about 0.1 s for 1,000 lessons of as many short tasks: call it in a thread.
    """
    tasks = list(dict.fromkeys(lesson["task"] for lesson in lessons))
    likeness = dict(zip(tasks, rank(task, tasks), strict=True))
    found = [(likeness[lesson["task"]], lesson) for lesson in lessons if likeness[lesson["task"]] >= LEAST_LIKENESS]
    return sorted(found, key=lambda each: (each[0], each[1]["created_at"]), reverse=True)[:limit]


def choose(
    wanted: Wanted, alike: Sequence[tuple[float, Lesson]], experiences: Mapping[str, Sequence[Experience]]
) -> Recalled:
    """The best of the lessons that may be used.

    Args:
        wanted: how many, and what is left to chance.
        alike: lessons and the likeness of their tasks.
        experiences: what runs made of them, by lesson.
    """
    known = [(similarity, KnownLesson(lesson, experiences.get(lesson["id"], ()))) for similarity, lesson in alike]
    ranked = sorted((each for each in known if each[1].usable), key=_merit, reverse=True)
    chosen = [_recalled(*each) for each in ranked[: wanted.limit]]
    if not chosen or ranked[len(chosen) - 1][1].used < TRIED_FIRST:
        return Recalled(used=chosen)
    if chance(wanted.run_id, "explore") < wanted.explore:
        least = ranked[len(chosen) - 1][0] - AS_LIKE
        trial = [each for each in ranked[wanted.limit :] if each[1].state == "candidate" and each[0] >= least]
        if trial:
            picked = trial[int(chance(wanted.run_id, "candidate") * len(trial))]
            chosen[-1] = _recalled(*picked, explored=True)
    control = chance(wanted.run_id, "control") < wanted.control
    return Recalled(withheld=chosen) if control else Recalled(used=chosen)


def chance(run_id: str, what: str) -> float:
    """A number from 0 to 1 (exclusive) that is evenly spread over runs, and the same for a run every time."""
    return int.from_bytes(hashlib.sha256(f"{what}:{run_id}".encode()).digest()[:6]) / 2**48


def _recalled(similarity: float, known: KnownLesson, *, explored: bool = False) -> RecalledLesson:
    return RecalledLesson(
        id=known.id,
        text=known.lesson["text"],
        similarity=round(similarity, 3),
        state=known.state,
        explored=explored,
    )


def _merit(scored: tuple[float, KnownLesson]) -> tuple[float, float, bool, float]:
    similarity, known = scored
    return round(similarity, 2), known.gain, known.state == "active", known.lesson["created_at"]
