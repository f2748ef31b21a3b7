"""The lessons in the store: written at the end of a run, recalled at the start of the next."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from urllib.parse import quote

from langgraph.store.base import BaseStore

from reflexion.memory.likeness import rank
from reflexion.memory.records import Lesson, RecalledLesson

LEAST_LIKENESS = 0.35
"""Below it a lesson belongs to another task."""

MOST_LESSONS = 1_000
"""Lessons that a namespace is searched for; the newest count."""


def namespace_of(label: str) -> tuple[str, ...]:
    """The store's namespace for a user's label, whatever characters that has."""
    return ("reflexion", "lessons", quote(label, safe="").replace(".", "%2E") or "default")


class Lessons:
    """One namespace of lessons."""

    def __init__(self, store: BaseStore, label: str, *, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._namespace = namespace_of(label)
        self._now = now

    async def recall(self, task: str, *, limit: int, also: Iterable[Lesson] = ()) -> list[RecalledLesson]:
        """The lessons of the most similar tasks, best first.

        Of equally similar ones those come first that helped most often, then those that a pass confirmed,
        then the newest.

        Args:
            task: the new task.
            limit: how many at the most.
            also: lessons from elsewhere that compete, such as those of the thread itself.
        """
        known = {lesson["id"]: lesson for lesson in also} | {lesson["id"]: lesson for lesson in await self.all()}
        lessons = list(known.values())
        likeness = await asyncio.to_thread(rank, task, [lesson["task"] for lesson in lessons])
        ranked = sorted(zip(likeness, lessons, strict=True), key=_merit, reverse=True)
        return [
            RecalledLesson(id=lesson["id"], text=lesson["text"], similarity=round(similarity, 3))
            for similarity, lesson in ranked[:limit]
            if similarity >= LEAST_LIKENESS
        ]

    async def all(self) -> list[Lesson]:
        """Every lesson of the namespace, the newest first."""
        items = await self._store.asearch(self._namespace, limit=MOST_LESSONS)
        lessons: list[Lesson] = [item.value for item in items]  # type: ignore[misc]  # written by `add` alone
        return sorted(lessons, key=lambda lesson: lesson["last_seen_at"], reverse=True)

    async def add(self, lessons: Sequence[Lesson]) -> None:
        """Store lessons; one that is there already is counted once more instead."""
        for lesson in lessons:
            old = await self._get(lesson["id"])
            if old is not None:
                if old["run_id"] == lesson["run_id"]:
                    continue
                lesson = old | {  # noqa: PLW2901
                    "times_seen": old["times_seen"] + 1,
                    "last_seen_at": self._now(),
                    "confirmed": old["confirmed"] or lesson["confirmed"],
                    "run_id": lesson["run_id"],
                }
            await self._store.aput(self._namespace, lesson["id"], dict(lesson), index=False)

    async def credit(self, ids: Collection[str], *, run_id: str, helped: bool) -> None:
        """Count that a run used these lessons, and whether it passed; saying it twice counts once."""
        for key in ids:
            lesson = await self._get(key)
            if lesson is None or lesson["credited_run"] == run_id:
                continue
            counted = lesson | {
                "credited_run": run_id,
                "times_used": lesson["times_used"] + 1,
                "times_helped": lesson["times_helped"] + helped,
            }
            await self._store.aput(self._namespace, key, dict(counted), index=False)

    async def _get(self, key: str) -> Lesson | None:
        item = await self._store.aget(self._namespace, key)
        return None if item is None else item.value  # type: ignore[return-value]


def _merit(scored: tuple[float, Lesson]) -> tuple[float, float, bool, float]:
    similarity, lesson = scored
    # Laplace's rule of succession: a lesson that was never used stands between good and bad ones.
    helps = (lesson["times_helped"] + 1) / (lesson["times_used"] + 2)
    return round(similarity, 2), helps, lesson["confirmed"], lesson["created_at"]
