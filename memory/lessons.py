"""The lessons in the store: written at the end of a run, recalled at the start of the next."""

import time
from collections.abc import Callable, Collection, Sequence
from urllib.parse import quote

from langgraph.store.base import BaseStore

from reflexion.memory.likeness import rank
from reflexion.memory.records import Lesson, RecalledLesson

LEAST_LIKENESS = 0.35
"""Below it a lesson belongs to another task.

Measured: of 160 HumanEval tasks put in other words (signature and examples dropped) 5 % fall below it among 20
tasks; an unrelated one reaches it in 5 % of the cases where 100 HumanEval tasks are known, and in 5, 17 and 33 %
where 1, 20 and 100 one-sentence MBPP tasks are, some of which are near-duplicates.
"""

MOST_LESSONS = 1_000
"""Lessons that a namespace keeps: those that were seen last."""

_PAGE = 1_000


def namespace_of(label: str) -> tuple[str, ...]:
    """The store's namespace for a user's label, whatever characters that has."""
    return ("reflexion", "lessons", quote(label, safe="").replace(".", "%2E") or "default")


def most_alike(task: str, lessons: Sequence[Lesson], limit: int) -> list[RecalledLesson]:
    """The lessons of the most similar tasks, at most `limit`, best first.

    Of equally similar ones those come first that helped most often, then those that a pass confirmed,
    then the newest. Takes about 0.1 s for 1,000 lessons of as many short tasks: call it in a thread.
    """
    tasks = list(dict.fromkeys(lesson["task"] for lesson in lessons))
    likeness = dict(zip(tasks, rank(task, tasks), strict=True))
    ranked = sorted(((likeness[lesson["task"]], lesson) for lesson in lessons), key=_merit, reverse=True)
    return [
        RecalledLesson(id=lesson["id"], text=lesson["text"], similarity=round(similarity, 3))
        for similarity, lesson in ranked[:limit]
        if similarity >= LEAST_LIKENESS
    ]


class Lessons:
    """One namespace of lessons."""

    def __init__(self, store: BaseStore, label: str, *, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._namespace = namespace_of(label)
        self._now = now

    async def all(self) -> list[Lesson]:
        """Every lesson of the namespace, the one that was seen last first."""
        lessons: list[Lesson] = []
        # Stores differ in the order in which they list things, so the newest may be on any page.
        while page := await self._store.asearch(self._namespace, limit=_PAGE, offset=len(lessons)):
            lessons += [item.value for item in page]  # type: ignore[misc]  # written by this class alone
            if len(page) < _PAGE:
                break
        return sorted(lessons, key=lambda lesson: lesson["last_seen_at"], reverse=True)

    async def add(self, lessons: Sequence[Lesson]) -> None:
        """Store lessons; one that is there already is counted once more instead."""
        for lesson in lessons:
            old = await self._get(lesson["id"])
            if old is None:
                await self._put(lesson)
            elif old["run_id"] != lesson["run_id"]:
                seen = old | {
                    "times_seen": old["times_seen"] + 1,
                    "last_seen_at": self._now(),
                    "confirmed": old["confirmed"] or lesson["confirmed"],
                    "run_id": lesson["run_id"],
                }
                await self._put(seen)
        if lessons:
            await self.prune()

    async def prune(self, keep: int = MOST_LESSONS) -> int:
        """Forget the lessons that have not been seen for longest, down to `keep`; returns how many went."""
        gone = (await self.all())[keep:]
        for lesson in gone:
            await self._store.adelete(self._namespace, lesson["id"])
        return len(gone)

    async def credit(self, ids: Collection[str], *, run_id: str, helped: bool) -> None:
        """Count that a run used these lessons, and whether it passed; saying it twice counts once."""
        for key in ids:
            lesson = await self._get(key)
            if lesson is None or lesson["credited_run"] == run_id:
                continue
            used = lesson | {
                "credited_run": run_id,
                "times_used": lesson["times_used"] + 1,
                "times_helped": lesson["times_helped"] + helped,
            }
            await self._put(used)

    async def _put(self, lesson: Lesson) -> None:
        await self._store.aput(self._namespace, lesson["id"], dict(lesson), index=False)

    async def _get(self, key: str) -> Lesson | None:
        item = await self._store.aget(self._namespace, key)
        return None if item is None else item.value  # type: ignore[return-value]


def _merit(scored: tuple[float, Lesson]) -> tuple[float, float, bool, float]:
    similarity, lesson = scored
    # Laplace's rule of succession: a lesson that was never used stands between good and bad ones.
    helps = (lesson["times_helped"] + 1) / (lesson["times_used"] + 2)
    return round(similarity, 2), helps, lesson["confirmed"], lesson["created_at"]
