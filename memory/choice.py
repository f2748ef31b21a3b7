"""Which lessons a run is given: those of the most similar tasks, the best of them first, now and then one on trial."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from reflexion.memory.likeness import hybrid, rank
from reflexion.memory.records import Lesson, RecalledLesson
from reflexion.memory.worth import KnownLesson
from reflexion.models.usage import estimate_tokens

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


MOST_TOKENS = 600
"""Of the lessons in a prompt; one lesson of the longest length takes up to so many, whatever its script."""


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
    tokens: int = MOST_TOKENS
    """Estimated tokens that the lessons may take together in a prompt."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a run is given, or, where it measures what memory does, what it would have been."""

    used: list[RecalledLesson] = field(default_factory=list)
    withheld: list[RecalledLesson] = field(default_factory=list)


def most_alike(
    task: str, found: Sequence[tuple[float | None, Lesson]], limit: int = CONSIDERED
) -> list[tuple[float, Lesson]]:
    """The lessons of the most similar tasks with that likeness, 0..1, at most `limit`, likest first.

    Takes about 0.1 s for 1,000 lessons of as many short tasks: call it in a thread.

    Args:
        task: what is compared with.
        found: lessons with what a store has for likeness. One without is no hit, unless all are: then words decide.
        limit: at most so many.
    """
    scores = {lesson["task"]: score for score, lesson in found if score is not None}
    if scores:
        likeness = dict(zip(scores, hybrid(task, [(score, known) for known, score in scores.items()]), strict=True))
    else:
        tasks = list(dict.fromkeys(lesson["task"] for _, lesson in found))
        likeness = dict(zip(tasks, rank(task, tasks), strict=True))
    alike = [(likeness.get(lesson["task"], 0.0), lesson) for _, lesson in found]
    hits = [each for each in alike if each[0] >= LEAST_LIKENESS]
    return sorted(hits, key=lambda each: (each[0], each[1]["created_at"]), reverse=True)[:limit]


def choose(wanted: Wanted, alike: Sequence[tuple[float, KnownLesson]]) -> Recalled:
    """The best of the lessons that may be used.

    Args:
        wanted: how many, how long, and what is left to chance.
        alike: lessons and the likeness of their tasks.
    """
    ranked = sorted((each for each in alike if each[1].usable), key=_merit, reverse=True)
    chosen = _fitting(ranked, wanted.limit, wanted.tokens)
    last = chosen[-1] if chosen else None
    if last is None or last[1].used < TRIED_FIRST:
        return Recalled(used=[_recalled(*each) for each in chosen])
    used = [_recalled(*each) for each in chosen]
    if chance(wanted.run_id, "explore") < wanted.explore:
        left = wanted.tokens - sum(_tokens(known) for _, known in chosen[:-1])
        rest = [each for each in ranked if each not in chosen]
        trial = [each for each in rest if each[1].state == "candidate" and each[0] >= last[0] - AS_LIKE]
        trial = [each for each in trial if _tokens(each[1]) <= left]
        if trial:
            picked = trial[int(chance(wanted.run_id, "candidate") * len(trial))]
            used[-1] = _recalled(*picked, explored=True)
    control = chance(wanted.run_id, "control") < wanted.control
    return Recalled(withheld=used) if control else Recalled(used=used)


def _fitting(ranked: Sequence[tuple[float, KnownLesson]], limit: int, tokens: int) -> list[tuple[float, KnownLesson]]:
    """The best of them that take no more room than there is; one that does not fit makes way for the next."""
    fitting: list[tuple[float, KnownLesson]] = []
    for each in ranked:
        if len(fitting) < limit and (size := _tokens(each[1])) <= tokens:
            fitting.append(each)
            tokens -= size
    return fitting


def _tokens(known: KnownLesson) -> int:
    return estimate_tokens(known.lesson["text"])


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
