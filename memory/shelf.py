"""One namespace of the store: lessons, what runs made of them, and how runs went, read and checked."""

import logging
from collections.abc import Collection, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from langgraph.store.base import BaseStore, Item, PutOp, SearchItem, SearchOp
from pydantic import TypeAdapter, ValidationError

from reflexion.memory.records import Earlier, Episode, Evidence, Experience, Lesson, task_key

T = TypeVar("T")

logger = logging.getLogger(__name__)

_PAGE = 1_000
_LESSON, _EXPERIENCE, _EPISODE = TypeAdapter(Lesson), TypeAdapter(Experience), TypeAdapter(Episode)


def namespace_of(label: str, kind: str = "lessons") -> tuple[str, ...]:
    """The store's namespace for a user's label, whatever characters that has."""
    return ("reflexion", kind, quote(label, safe="").replace(".", "%2E") or "default")


class Shelf:
    """What one namespace holds.

    Every item is written once and never changed, so that any number of processes may write at the same time.
    """

    def __init__(self, store: BaseStore, label: str) -> None:
        self._store = store
        self._lessons = namespace_of(label)
        self._experiences = namespace_of(label, "experiences")
        self._episodes = namespace_of(label, "episodes")

    async def lessons(self) -> list[Lesson]:
        """Every lesson."""
        return [found for item in await self._all(self._lessons) if (found := _read_lesson(item)) is not None]

    async def experiences(self, lessons: Sequence[Lesson]) -> dict[str, list[Experience]]:
        """What runs made of these lessons, by lesson, newest first."""
        found: dict[str, list[Experience]] = {lesson["id"]: [] for lesson in lessons}
        if len(lessons) <= _FEW:
            asked = [SearchOp((*self._experiences, lesson["id"]), limit=_PAGE) for lesson in lessons]
            pages: list[Any] = await self._store.abatch(asked) if asked else []
            items = [item for page in pages for item in page]
        else:
            items = await self._all(self._experiences)
        for item in items:
            each = _checked(_EXPERIENCE, item, item.value)
            if each is not None and each["lesson_id"] in found:
                found[each["lesson_id"]].append(each)
        for lesson in lessons:
            known = found[lesson["id"]]
            if lesson["earlier"] and all(e["run_id"] != lesson["earlier"]["experience"]["run_id"] for e in known):
                known.append(lesson["earlier"]["experience"])
            known.sort(key=lambda each: each["at"], reverse=True)
        return found

    async def episodes(self, task: str | None = None) -> list[Episode]:
        """How runs went, newest first; with a task's key only the runs of that task."""
        items = await self._all(self._episodes, {"task_key": task} if task else None)
        read = (_checked(_EPISODE, item, item.value) for item in items)
        return sorted((each for each in read if each is not None), key=lambda each: each["at"], reverse=True)

    async def write(
        self, lessons: Collection[Lesson] = (), experiences: Collection[Experience] = (), episode: Episode | None = None
    ) -> None:
        """Write all of it together; what is there already under the same lesson and run is replaced."""
        puts = [PutOp(self._lessons, lesson["id"], dict(lesson), index=False) for lesson in lessons]
        puts += [PutOp(self._where(e["lesson_id"]), e["run_id"], dict(e), index=False) for e in experiences]
        if episode:
            puts.append(PutOp(self._episodes, episode["run_id"], dict(episode), index=False))
        if puts:
            await self._store.abatch(puts)

    async def delete(
        self, lessons: Collection[str] = (), experiences: Collection[Experience] = (), episodes: Collection[str] = ()
    ) -> None:
        """Delete all of it together."""
        puts = [PutOp(self._lessons, key, None) for key in lessons]
        puts += [PutOp(self._where(each["lesson_id"]), each["run_id"], None) for each in experiences]
        puts += [PutOp(self._episodes, key, None) for key in episodes]
        if puts:
            await self._store.abatch(puts)

    async def clear(self) -> None:
        """Delete everything, also what cannot be read."""
        for namespace in (self._lessons, self._experiences, self._episodes):
            puts = [PutOp(item.namespace, item.key, None) for item in await self._all(namespace)]
            if puts:
                await self._store.abatch(puts)

    def _where(self, lesson_id: str) -> tuple[str, ...]:
        return (*self._experiences, lesson_id)

    async def _all(self, namespace: tuple[str, ...], filtered: dict[str, Any] | None = None) -> list[SearchItem]:
        # Stores differ in the order in which they list things, so the newest may be on any page.
        items: dict[tuple[tuple[str, ...], str], SearchItem] = {}
        offset = 0
        while page := await self._store.asearch(namespace, filter=filtered, limit=_PAGE, offset=offset):
            offset += len(page)
            items.update({(item.namespace, item.key): item for item in page})
            if len(page) < _PAGE:
                break
        # A store may take a prefix of a name for the name.
        return [item for item in items.values() if item.namespace[: len(namespace)] == namespace]


_FEW = 100
"""Lessons that are asked for one by one; of more everything is read."""


def _checked(adapter: TypeAdapter[T], item: Item, value: Any) -> T | None:
    """One unreadable item must not keep every run from its start."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        logger.warning("memory: %s in %s is left out: it is none of ours (%d faults)", item.key, item.namespace[-1],
                       error.error_count())  # fmt: skip
        return None


def _read_lesson(item: Item) -> Lesson | None:
    old = isinstance(item.value, dict) and "times_used" in item.value
    try:
        return _checked(_LESSON, item, _migrated(item.value) if old else item.value)
    except (KeyError, TypeError):
        return _checked(_LESSON, item, None)


def _migrated(old: dict[str, Any]) -> Lesson:
    """A lesson of the form in which it held its own counters."""
    evidence = Evidence(
        thread_id=old["thread_id"],
        attempt=old["attempt"],
        text=old["text"],
        evaluator=old["evaluator"],
        verdict="",
        confirmed=old["confirmed"],
    )
    experience = Experience(
        lesson_id=old["id"], run_id=old["run_id"], at=old["last_seen_at"], evidence=evidence, use=None
    )
    earlier = Earlier(
        seen=old["times_seen"] - 1, used=old["times_used"], helped=old["times_helped"], experience=experience
    )
    return Lesson(
        id=old["id"],
        task=old["task"],
        task_key=task_key(old["task"]),
        text=old["text"],
        created_at=old["created_at"],
        earlier=earlier,
    )
