"""The memory of one namespace: what runs leave there, what they are given, and what can be done with it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from reflexion.memory.choice import CONSIDERED, Recalled, Wanted, choose, most_alike
from reflexion.memory.decisions import Change, records_of
from reflexion.memory.effect import Effect, effect_of
from reflexion.memory.persistence import DatabaseSettings, open_persistence
from reflexion.memory.places import check_namespace
from reflexion.memory.records import Episode, Evidence, Experience, Lesson, Use
from reflexion.memory.room import MOST_EPISODES, MOST_OF_TASK, OLDEST_EPISODE_S, SPARED, Keep, due, surplus, worn
from reflexion.memory.shelf import Shelf
from reflexion.memory.transfer import as_line, read_lines
from reflexion.memory.upkeep import same_rule
from reflexion.memory.worth import KnownLesson, know, outcome

EPISODES_COUNTED = 200
"""Last runs of a task by which it is judged what is to be expected of it."""
LISTED = 2_000
"""Lessons that are looked at where the store cannot search."""
VERY_ALIKE = 0.85
"""Likeness of tasks from which their lessons are looked at together."""
MOST_IN_GROUP = 20
"""Lessons that are looked at together."""


@dataclass(frozen=True, slots=True)
class Gone:
    """How much was forgotten."""

    lessons: int
    episodes: int = 0


class Memory:
    """One namespace. Any number of processes may use it at once: what a run leaves is written once, by that run."""

    def __init__(
        self,
        store: BaseStore,
        label: str = "default",
        *,
        keep: Keep = Keep(),  # noqa: B008 - frozen
        now: Callable[[], float] = time.time,
    ) -> None:
        """Take a place in a store.

        Args:
            store: any of LangGraph's; one that searches finds lessons of similar tasks among any number.
            label: any text of 1 to 128 characters.
            keep: how much stays.
            now: seconds since 1970.

        Raises:
            NamespaceError: the label can be none.
        """
        self._shelf = Shelf(store, label)
        self._keep = keep
        self._now = now

    async def lessons(self) -> list[KnownLesson]:
        """Every lesson, the one that was seen or used last first."""
        known = await self._known(await self._shelf.lessons())
        return sorted(known.values(), key=lambda each: each.last_seen_at, reverse=True)

    async def of_their_tasks(self, ids: Collection[str]) -> dict[str, KnownLesson]:
        """The lessons with these ids, as far as they are there, and all others of their tasks, by id."""
        named = await self._shelf.near((), ids)
        return await self._known([*(await self._shelf.near(each["task_key"] for each in named.values())).values()])

    async def episodes(self) -> list[Episode]:
        """How the last runs went, newest first."""
        return await self._shelf.episodes()

    async def search(self, task: str, limit: int = 10) -> list[tuple[float, KnownLesson]]:
        """The lessons of the most similar tasks with that likeness, 0..1, whether or not they are in use."""
        found = await self._shelf.find(task, max(limit, CONSIDERED))
        if all(score is None for score, _ in found):
            found = [(None, lesson) for lesson in await self._shelf.lessons(LISTED)] if found else []
        alike = await asyncio.to_thread(most_alike, task, found, limit) if found else []
        known = await self._known([lesson for _, lesson in alike])
        return [(similarity, known[lesson["id"]]) for similarity, lesson in alike]

    async def effect(self) -> Effect:
        """What memory does, by runs that had it and runs of which it was withheld."""
        return effect_of(await self.episodes())

    async def recall(self, task: str, wanted: Wanted) -> Recalled:
        """What a run on this task is given."""
        found = await self.search(task, CONSIDERED)
        since = self._keep.since(self._now())
        return choose(wanted, [each for each in found if each[1].last_seen_at >= since])

    async def remember(self, episode: Episode, learned: Sequence[tuple[Lesson, Evidence]] = ()) -> list[Lesson]:
        """Keep how a run went, what it has learned, and what it made of the lessons that it was given.

        Doing so again, after a crash, counts nothing twice. Returns the lessons that were learned as they are kept:
        one that says what an old one says is kept as evidence for that.
        """
        known = await self._shelf.near([lesson["task_key"] for lesson, _ in learned], episode["lessons_used"])
        by_id = dict(known)

        evidence: dict[str, Evidence] = {}
        for lesson, why in learned:
            kept = await asyncio.to_thread(same_rule, lesson, list(by_id.values())) or lesson
            by_id.setdefault(kept["id"], kept)
            if kept["id"] not in evidence or why["confirmed"]:
                evidence[kept["id"]] = why

        used = [by_id[key] for key in episode["lessons_used"] if key in known]
        better = [key for key, why in evidence.items() if why["confirmed"] and key not in episode["lessons_used"]]
        uses = await self._uses(used, episode, better) if used and episode["first_passed"] is not None else {}

        now, run_id = self._now(), episode["run_id"]
        touched = [by_id[key] for key in dict.fromkeys([*evidence, *uses])]
        experiences = [
            Experience(
                lesson_id=lesson["id"],
                run_id=run_id,
                at=now,
                evidence=evidence.get(lesson["id"]),
                use=uses.get(lesson["id"]),
            )
            for lesson in touched
        ]
        new = [by_id[key] for key in evidence if key not in known]
        await self._shelf.write(new, experiences, episode | {"lessons_learned": list(evidence), "at": now})
        await self._make_room(touched, [*by_id.values()], run_id)
        return [by_id[key] for key in evidence]

    async def decide(self, change: Change, decision_id: str) -> None:
        """Change lessons apart from any run. `forget_run(decision_id)` undoes it.

        Args:
            change: see `refusal`, which is not asked again.
            decision_id: what is before its first dot is the id of all that were decided together.
        """
        lessons, experiences = records_of(change, decision_id, self._now())
        await self._shelf.write(lessons, experiences)

    async def alike(self, limit: int) -> list[list[KnownLesson]]:
        """Groups of lessons in use, of the same task or of very alike ones, those first that were seen last.

        Args:
            limit: of groups.
        """
        groups: list[list[KnownLesson]] = []
        seen: set[str] = set()
        for lesson in await self.lessons():
            if len(groups) == limit:
                break
            if lesson.usable and lesson.id not in seen:
                found = await self.search(lesson.lesson["task"], CONSIDERED)
                near = [each for likeness, each in found if likeness >= VERY_ALIKE and each.usable]
                group = [each for each in near if each.id not in seen][:MOST_IN_GROUP]
                seen |= {lesson.id, *(each.id for each in group)}
                groups += [group] if len(group) > 1 else []
        return groups

    async def forget(self, ids: Collection[str]) -> Gone:
        """Forget lessons for good, with all that runs made of them. What they had taken the place of comes back."""
        gone = await self._known(list((await self._shelf.near((), ids)).values()))
        await self._forget([gone[key] for key in dict.fromkeys(ids) if key in gone])
        await self._shelf.scrub()
        return Gone(sum(key in gone for key in set(ids)))

    async def forget_run(self, run_id: str) -> Gone:
        """Forget a run, or a decision about lessons, and all that came of it.

        That is the lessons that it alone came to; what later runs learned while they used one of these, and so on;
        and what any of these runs says about other lessons.
        """
        known = await self.lessons()
        runs, gone = _came_of(run_id, known)
        left = [each for each in known if each.id not in gone]
        await self._forget([each for each in known if each.id in gone])
        # What an old form of a lesson says of its run is in the lesson itself.
        cleared = [
            each.lesson | {"earlier": None}
            for each in left
            if each.lesson["earlier"] and each.lesson["earlier"]["experience"]["run_id"] in runs
        ]
        passed_on = [each for lesson in left for each in _without_runs(lesson, runs)]
        await self._shelf.write(cleared, passed_on)
        spoken = [e for each in left for e in each.experiences if e["run_id"] in runs]
        episodes = [each for each in await self.episodes() if each["run_id"] in runs]
        await self._shelf.delete(experiences=spoken, episodes=episodes)
        await self._shelf.scrub()
        return Gone(len(gone), len(episodes))

    async def forget_all(self) -> Gone:
        """Forget everything in this namespace."""
        gone = Gone(len(await self._shelf.lessons()), len(await self.episodes()))
        await self._shelf.clear()
        await self._shelf.scrub()
        return gone

    async def prune(
        self, keep: Keep | None = None, *, episodes: int = MOST_EPISODES, older_than_s: float = OLDEST_EPISODE_S
    ) -> Gone:
        """Forget what is too much or too old; the same happens now and then by itself.

        Args:
            keep: how many lessons are kept, and how long; None for what this memory keeps.
            episodes: so many are kept, the last ones.
            older_than_s: how old an episode may be, in seconds.
        """
        lessons = await self._prune_lessons(keep or self._keep)
        return Gone(lessons, await self._prune_episodes(episodes, older_than_s))

    async def export_lines(self) -> list[str]:
        """Every lesson as a line of JSON, with all that is known of it, oldest first."""
        known = sorted(await self.lessons(), key=lambda each: (each.lesson["created_at"], each.id))
        return [as_line(each) for each in known]

    async def import_lines(self, lines: Iterable[str]) -> int:
        """Add lessons from elsewhere, as candidates; returns how many were not there already.

        Raises:
            TransferError: a line holds no lesson; nothing was added.
        """
        read = read_lines(lines)
        of_task: dict[str, list[Lesson]] = {lesson["task_key"]: [] for lesson, _ in read}
        for lesson in (await self._shelf.near(of_task)).values():
            of_task[lesson["task_key"]].append(lesson)
        added: list[Lesson] = []
        experiences: list[Experience] = []
        for lesson, origins in read:
            if same_rule(lesson, of_task[lesson["task_key"]]) is None:
                of_task[lesson["task_key"]].append(lesson)
                added.append(lesson)
                experiences += origins
        await self._shelf.write(added, experiences)
        return len(added)

    async def reindex(self) -> bool:
        """Have the store's index made anew, for all namespaces; False where it has none that could be."""
        return await self._shelf.reindex()

    async def _known(self, lessons: Sequence[Lesson]) -> dict[str, KnownLesson]:
        """All that is known of these, by id; what took the place of one is looked up where it is none of them."""
        found = {lesson["id"]: lesson for lesson in lessons}
        experiences: dict[str, list[Experience]] = {}
        new = list(lessons)
        while new:
            experiences |= await self._shelf.experiences(new)
            aside = {KnownLesson(lesson, experiences[lesson["id"]]).put_aside for lesson in new}
            instead = await self._shelf.near((), [key for key in aside if key and key not in found])
            new = [lesson for key, lesson in instead.items() if key not in found]
            found |= instead
        known = know(found.values(), experiences)
        return {lesson["id"]: known[lesson["id"]] for lesson in lessons}

    async def _uses(self, used: Sequence[Lesson], episode: Episode, better: Sequence[str]) -> dict[str, Use]:
        before = await self._shelf.episodes(episode["task_key"], at_most=EPISODES_COUNTED)
        alone = [
            each["first_passed"]
            for each in before
            if each["run_id"] != episode["run_id"] and not each["lessons_used"] and each["first_passed"] is not None
        ]
        # Laplace's rule of succession: 1/2 where nothing is known of the task.
        expected = (sum(alone) + 1) / (len(alone) + 2)
        passed = bool(episode["first_passed"])
        uses = {}
        for lesson in used:
            replaced = not passed and better and lesson["task_key"] == episode["task_key"]
            uses[lesson["id"]] = Use(
                passed=passed,
                expected=expected,
                outcome=outcome(passed, expected),
                replaced_by=better[-1] if replaced else "",
            )
        return uses

    async def _make_room(self, touched: Sequence[Lesson], near: Sequence[Lesson], run_id: str) -> None:
        """Keep down what this run has added to; now and then look through the whole namespace."""
        experiences = await self._shelf.experiences(touched)
        await self._shelf.delete(experiences=[old for each in experiences.values() for old in worn(each)])
        for key in {lesson["task_key"] for lesson in touched}:
            of_task = [lesson for lesson in near if lesson["task_key"] == key]
            if len(of_task) > MOST_OF_TASK:
                known = await self._known(of_task)
                await self._forget(surplus(known.values(), int(MOST_OF_TASK * SPARED)))
        if due(run_id, "lessons", self._keep.lessons):
            await self._prune_lessons(self._keep)
        if due(run_id, "episodes", MOST_EPISODES):
            await self._prune_episodes(MOST_EPISODES, OLDEST_EPISODE_S)

    async def _prune_lessons(self, keep: Keep) -> int:
        stored = await self._shelf.lessons()
        if len(stored) <= keep.lessons and keep.days is None:
            return 0
        known = (await self._known(stored)).values()
        unseen = {each.id for each in known if each.last_seen_at < keep.since(self._now())}
        gone = [each for each in known if each.id in unseen]
        gone += surplus([each for each in known if each.id not in unseen], keep.lessons)
        await self._forget(gone)
        return len(gone)

    async def _prune_episodes(self, most: int, older_than_s: float) -> int:
        kept = await self.episodes()
        oldest = self._now() - older_than_s
        old = [each for n, each in enumerate(kept) if n >= most or each["at"] < oldest]
        await self._shelf.delete(episodes=old)
        return len(old)

    async def _forget(self, gone: Sequence[KnownLesson]) -> None:
        await self._shelf.delete([each.id for each in gone], [e for each in gone for e in each.experiences])


def _came_of(run_id: str, known: Sequence[KnownLesson]) -> tuple[set[str], set[str]]:
    """The runs and the lessons that came of a run, itself included; a decision's parts begin with its id and a dot."""
    every = {each["run_id"] for lesson in known for each in lesson.experiences}
    runs, gone = {run_id, *(each for each in every if each.startswith(f"{run_id}."))}, set[str]()
    while True:
        new = [each for each in known if each.id not in gone and each.origins and each.origins <= runs]
        if not new:
            return runs, gone
        gone |= {each.id for each in new}
        runs |= {e["run_id"] for each in new for e in each.experiences if e["use"]}
        runs |= {e["run_id"] for each in known for e, decision in each.decisions if not gone.isdisjoint(decision["of"])}


def _without_runs(lesson: KnownLesson, runs: Collection[str]) -> list[Experience]:
    """The decisions that gave a lesson the evidence of one of these runs, without it."""
    found = []
    for each, decision in lesson.decisions:
        carried = [one for one in decision["carried"] if one["run_id"] not in runs]
        if each["run_id"] not in runs and len(carried) < len(decision["carried"]):
            found.append(each | {"decision": decision | {"carried": carried}})
    return found


@asynccontextmanager
async def open_memory(
    database_url: str | None = None, namespace: str = "default", *, embeddings: Embeddings | bool | None = None
) -> AsyncIterator[Memory]:
    """The memory of a namespace in a database, to look into, to correct, and to carry elsewhere.

    Args:
        database_url: None for `REFLEXION_DATABASE_URL`, else a SQLite file in the user's data folder.
        namespace: any text of 1 to 128 characters.
        embeddings: see `open_persistence`; None for what `REFLEXION_EMBEDDINGS` says.

    Raises:
        DatabaseError: it cannot be opened.
        NamespaceError: the namespace can be none.
    """
    check_namespace(namespace)
    settings = await asyncio.to_thread(DatabaseSettings)
    wanted = settings.embeds if embeddings is None else embeddings
    async with open_persistence(database_url or settings.database_url, embeddings=wanted) as persistence:
        yield Memory(persistence.store, namespace)
