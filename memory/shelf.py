"""One namespace of the store: lessons, what runs made of them, and how runs went, read and checked."""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore
from pydantic import TypeAdapter, ValidationError

from reflexion.memory.old_form import moves
from reflexion.memory.places import Places, is_lesson_id
from reflexion.memory.records import LONGEST_TASK, Episode, Experience, Lesson

T = TypeVar("T")
AnyItem = TypeVar("AnyItem", bound=Item)

logger = logging.getLogger(__name__)

FORM = 2
"""Of the places; before, all lessons of a namespace and all its episodes lay in one place each."""

_MARK = "form"
"""Key of the item that says in which form a namespace is."""
_PAGE = 5_000
"""Items that are read at once."""
_BATCH = 500  # even, so that a move is never torn
"""Items that are written in one transaction, so that other writers need not wait long."""
_FEW = 100
"""Lessons that are asked for one by one; of more everything is read."""
_LESSON, _EXPERIENCE, _EPISODE = TypeAdapter(Lesson), TypeAdapter(Experience), TypeAdapter(Episode)


class Shelf:
    """What one namespace holds.

    Every item is written once and never changed, so that any number of processes may write at the same time.
    """

    def __init__(self, store: BaseStore, label: str) -> None:
        self._store = store
        self._places = Places(label)
        self._ready = self._marked = False

    async def find(self, task: str, limit: int) -> list[tuple[float | None, Lesson]]:
        """Lessons of the most similar tasks with what the store has for likeness, so many at the most.

        A store that cannot search gives None for it, and any lessons.
        """
        await self._get_ready()
        place, asked = self._places.lessons, limit
        while True:
            found = await self._store.asearch(place, query=task[:LONGEST_TASK], limit=asked)
            items = _within(place, found)[:limit]
            if len(items) == limit or len(found) < asked or asked >= _PAGE:
                break
            # Those of other memories, whose names begin alike, take up the room.
            asked = min(_PAGE, asked * 10)
        return [(item.score, lesson) for item in items if (lesson := _read_lesson(item)) is not None]

    async def near(self, tasks: Iterable[str], ids: Iterable[str] = ()) -> dict[str, Lesson]:
        """All lessons of these tasks, by their keys, and those with these ids; those there are, by id."""
        await self._get_ready()
        asked: list[Op] = [SearchOp(self._places.of_task(key), limit=_PAGE) for key in dict.fromkeys(tasks)]
        asked += [GetOp(self._places.of_lesson(key), key) for key in dict.fromkeys(ids) if is_lesson_id(key)]
        items = _within(self._places.lessons, await self._ask(asked))
        return {lesson["id"]: lesson for item in items if (lesson := _read_lesson(item)) is not None}

    async def lessons(self, at_most: int | None = None) -> list[Lesson]:
        """Every lesson, or any so many."""
        await self._get_ready()
        items = await self._all(self._places.lessons, at_most)
        return [found for item in items if (found := _read_lesson(item)) is not None]

    async def experiences(self, lessons: Collection[Lesson]) -> dict[str, list[Experience]]:
        """What runs made of these lessons, by lesson, newest first."""
        found: dict[str, list[Experience]] = {lesson["id"]: [] for lesson in lessons}
        if len(lessons) <= _FEW:
            asked = [SearchOp(self._places.of_uses(lesson["id"]), limit=_PAGE) for lesson in lessons]
            items = _within(self._places.experiences, await self._ask(asked))
        else:
            items = [*await self._all(self._places.experiences)]
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

    async def episodes(self, task: str | None = None, *, at_most: int | None = None) -> list[Episode]:
        """How runs went, newest first; with a task's key only the runs of that task."""
        await self._get_ready()
        items = await self._all(self._places.episodes if task is None else self._places.of_runs(task), at_most)
        read = (_checked(_EPISODE, item, item.value) for item in items)
        return sorted((each for each in read if each is not None), key=lambda each: each["at"], reverse=True)

    async def write(
        self, lessons: Collection[Lesson] = (), experiences: Collection[Experience] = (), episode: Episode | None = None
    ) -> None:
        """Write all of it together; what is there already under the same lesson and run is replaced."""
        await self._get_ready()
        places = self._places
        puts = [PutOp(places.of_lesson(each["id"]), each["id"], dict(each), index=["task"]) for each in lessons]
        puts += [PutOp(places.of_uses(e["lesson_id"]), e["run_id"], dict(e), index=False) for e in experiences]
        if episode:
            puts.append(PutOp(places.of_runs(episode["task_key"]), episode["run_id"], dict(episode), index=False))
        if puts and not self._marked:
            puts.append(PutOp(places.form, _MARK, {"form": FORM}, index=False))
        await self._change(puts)
        self._marked = self._marked or bool(puts)

    async def delete(
        self,
        lessons: Collection[str] = (),
        experiences: Collection[Experience] = (),
        episodes: Collection[Episode] = (),
    ) -> None:
        """Delete all of it together."""
        places = self._places
        gone = [(places.of_lesson(key), key) for key in lessons if is_lesson_id(key)]
        gone += [(places.of_uses(each["lesson_id"]), each["run_id"]) for each in experiences]
        gone += [(places.of_runs(each["task_key"]), each["run_id"]) for each in episodes]
        await self._delete(gone)

    async def clear(self) -> None:
        """Delete everything, also what cannot be read."""
        await self._delete([(item.namespace, item.key) for item in await self._everything()])
        self._marked = False

    async def scrub(self) -> None:
        """Leave no trace of what was deleted, where the store can see to that."""
        scrub = getattr(self._store, "ascrub", None)
        if scrub is not None:
            await scrub()

    async def reindex(self) -> bool:
        """Let the store index everything anew, that of other namespaces too; whether it can."""
        again = getattr(self._store, "areindex", None)
        if again is None:
            return False
        await again()
        return True

    async def _get_ready(self) -> None:
        """Move what lies in the old places, once and for all."""
        if self._ready:
            return
        self._marked = await self._store.aget(self._places.form, _MARK) is not None
        # Again until nothing is left: another process may be moving, too, and be killed at it.
        while not self._marked and (left := moves(self._places, await self._everything())):
            await self._change([op for move in left for op in move])
        self._ready = True

    async def _ask(self, ops: Sequence[Op]) -> list[Item]:
        """The items that searches and look-ups give, put together."""
        found: list[Any] = []
        for start in range(0, len(ops), _BATCH):
            found += await self._store.abatch(ops[start : start + _BATCH])
        return [item for each in found for item in (each if isinstance(each, list) else [each]) if item is not None]

    async def _delete(self, gone: Sequence[tuple[tuple[str, ...], str]]) -> None:
        await self._change([PutOp(namespace, key, None) for namespace, key in gone])

    async def _change(self, puts: Sequence[PutOp]) -> None:
        # LangGraph's store in memory refuses a batch in which one text is to be indexed twice.
        size = 1 if isinstance(self._store, InMemoryStore) else _BATCH
        for start in range(0, len(puts), size):
            await self._store.abatch(puts[start : start + size])

    async def _everything(self) -> list[SearchItem]:
        places = self._places
        kinds = (places.lessons, places.experiences, places.episodes, places.form)
        return [item for kind in kinds for item in await self._all(kind)]

    async def _all(self, namespace: tuple[str, ...], at_most: int | None = None) -> list[SearchItem]:
        # Stores differ in the order in which they list things, so the newest may be on any page.
        items: dict[tuple[tuple[str, ...], str], SearchItem] = {}
        offset, page_size = 0, min(_PAGE, at_most or _PAGE)
        while page := await self._store.asearch(namespace, limit=page_size, offset=offset):
            offset += len(page)
            items.update({(item.namespace, item.key): item for item in _within(namespace, page)})
            if len(page) < page_size or (at_most and len(items) >= at_most):
                break
        return list(items.values())[:at_most]


def _within(namespace: tuple[str, ...], items: Iterable[AnyItem]) -> list[AnyItem]:
    """Those of a namespace: a store may take the beginning of a name, or a sign in it, for more than it is."""
    return [item for item in items if item.namespace[: len(namespace)] == namespace]


def _read_lesson(item: Item) -> Lesson | None:
    return _checked(_LESSON, item, item.value)


def _checked(adapter: TypeAdapter[T], item: Item, value: Any) -> T | None:
    """One unreadable item must not keep every run from its start."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        logger.warning("memory: %s in %s is left out: it is none of ours (%d faults)", item.key, item.namespace[2],
                       error.error_count())  # fmt: skip
        return None
