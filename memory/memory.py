"""The memory of one namespace: what runs leave there, what they are given, and what can be done with it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from langgraph.store.base import BaseStore

from reflexion.memory.choice import Recalled, Wanted, chance, choose, most_alike
from reflexion.memory.effect import Effect, effect_of
from reflexion.memory.persistence import open_persistence
from reflexion.memory.records import Episode, Evidence, Experience, Lesson, Use
from reflexion.memory.shelf import Shelf
from reflexion.memory.transfer import as_line, read_lines
from reflexion.memory.upkeep import same_rule
from reflexion.memory.worth import KnownLesson, outcome

MOST_LESSONS = 1_000
"""Lessons that a namespace keeps: the retired ones go first, then those that were seen or used longest ago."""
KEPT_LESSONS = 900
"""So many are left then, so that not every run has to make room."""
MOST_EXPERIENCES = 100
"""Runs that used a lesson, and runs that came to it, of which each lesson knows: the last ones."""
MOST_EPISODES = 2_000
"""Episodes that a namespace keeps: the last ones."""
OLDEST_EPISODE_S = 180 * 24 * 3600.0
"""How long they are kept at the most, in seconds."""
PRUNED_IN = 0.05
"""Share of the runs that look after the episodes."""


@dataclass(frozen=True, slots=True)
class Gone:
    """How much was forgotten."""

    lessons: int
    episodes: int = 0


class Memory:
    """One namespace. Any number of processes may use it at once: what a run leaves is written once, by that run."""

    def __init__(self, store: BaseStore, label: str = "default", *, now: Callable[[], float] = time.time) -> None:
        self._shelf = Shelf(store, label)
        self._now = now

    async def lessons(self) -> list[KnownLesson]:
        """Every lesson, the one that was seen or used last first."""
        return await self._known(await self._shelf.lessons())

    async def episodes(self) -> list[Episode]:
        """How the last runs went, newest first."""
        return await self._shelf.episodes()

    async def search(self, task: str, limit: int = 10) -> list[tuple[float, KnownLesson]]:
        """The lessons of the most similar tasks with that likeness, 0..1, whether or not they are in use."""
        lessons = await self._shelf.lessons()
        alike = await asyncio.to_thread(most_alike, task, lessons, limit)
        found = {known.id: known for known in await self._known([lesson for _, lesson in alike])}
        return [(similarity, found[lesson["id"]]) for similarity, lesson in alike]

    async def effect(self) -> Effect:
        """What memory does, by runs that had it and runs of which it was withheld."""
        return effect_of(await self.episodes())

    async def recall(self, task: str, wanted: Wanted) -> Recalled:
        """What a run on this task is given."""
        lessons = await self._shelf.lessons()
        if not lessons:
            return Recalled()
        alike = await asyncio.to_thread(most_alike, task, lessons)
        experiences = await self._shelf.experiences([lesson for _, lesson in alike])
        return choose(wanted, alike, experiences)

    async def remember(self, episode: Episode, learned: Sequence[tuple[Lesson, Evidence]] = ()) -> list[Lesson]:
        """Keep how a run went, what it has learned, and what it made of the lessons that it was given.

        Doing so again, after a crash, counts nothing twice. Returns the lessons that were learned as they are kept:
        one that says what an old one says is kept as evidence for that.
        """
        known = await self._shelf.lessons()
        by_id = {lesson["id"]: lesson for lesson in known}
        now, run_id = self._now(), episode["run_id"]

        evidence: dict[str, Evidence] = {}
        for lesson, why in learned:
            kept = await asyncio.to_thread(same_rule, lesson, list(by_id.values())) or lesson
            by_id.setdefault(kept["id"], kept)
            if kept["id"] not in evidence or why["confirmed"]:
                evidence[kept["id"]] = why

        uses: dict[str, Use] = {}
        if episode["first_passed"] is not None and any(key in by_id for key in episode["lessons_used"]):
            better = [key for key, why in evidence.items() if why["confirmed"]]
            uses = await self._uses([by_id[key] for key in episode["lessons_used"] if key in by_id], episode, better)

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
        kept_lessons = [by_id[key] for key in evidence]
        new = {lesson["id"] for lesson in kept_lessons} - {lesson["id"] for lesson in known}
        await self._shelf.write(
            [by_id[key] for key in new],
            experiences,
            episode | {"lessons_learned": list(evidence), "at": now},
        )
        await self._trim(touched)
        if len(by_id) > MOST_LESSONS:
            await self.prune(lessons=KEPT_LESSONS)
        elif chance(run_id, "prune") < PRUNED_IN:
            await self.prune()
        return kept_lessons

    async def forget(self, ids: Collection[str]) -> Gone:
        """Forget lessons for good, with all that runs made of them. What they had taken the place of comes back."""
        known = await self.lessons()
        gone = [each for each in known if each.id in set(ids)]
        await self._forget(gone, known)
        return Gone(len(gone))

    async def forget_run(self, run_id: str) -> Gone:
        """Forget a run and all that came of it.

        That is the lessons that it alone came to; what later runs learned while they used one of these, and so on;
        and what any of these runs says about other lessons.
        """
        known = await self.lessons()
        runs, gone = _came_of(run_id, known)
        left = [each for each in known if each.id not in gone]
        await self._forget([each for each in known if each.id in gone], left)
        spoken = [e for each in left for e in each.experiences if e["run_id"] in runs]
        # What an old form of a lesson says of its run is in the lesson itself.
        cleared = [
            each.lesson | {"earlier": None}
            for each in left
            if each.lesson["earlier"] and each.lesson["earlier"]["experience"]["run_id"] in runs
        ]
        await self._shelf.write(cleared)
        episodes = [each["run_id"] for each in await self.episodes() if each["run_id"] in runs]
        await self._shelf.delete(experiences=spoken, episodes=episodes)
        return Gone(len(gone), len(episodes))

    async def forget_all(self) -> Gone:
        """Forget everything in this namespace."""
        gone = Gone(len(await self._shelf.lessons()), len(await self.episodes()))
        await self._shelf.clear()
        return gone

    async def prune(
        self, *, lessons: int = MOST_LESSONS, episodes: int = MOST_EPISODES, older_than_s: float = OLDEST_EPISODE_S
    ) -> Gone:
        """Forget what is too much or too old; the same happens now and then by itself."""
        stored = await self._shelf.lessons()
        known = await self._known(stored) if len(stored) > lessons else []
        known.sort(key=lambda each: each.state != "retired", reverse=True)
        await self._forget(known[lessons:], known[:lessons])
        kept = await self.episodes()
        oldest = self._now() - older_than_s
        old = [each["run_id"] for n, each in enumerate(kept) if n >= episodes or each["at"] < oldest]
        await self._shelf.delete(episodes=old)
        return Gone(len(known[lessons:]), len(old))

    async def export_lines(self) -> list[str]:
        """Every lesson as a line of JSON, with all that is known of it, oldest first."""
        known = sorted(await self.lessons(), key=lambda each: (each.lesson["created_at"], each.id))
        return [as_line(each) for each in known]

    async def import_lines(self, lines: Iterable[str]) -> int:
        """Add lessons from elsewhere, as candidates; returns how many were not there already.

        Raises:
            TransferError: a line holds no lesson; nothing was added.
        """
        known = await self._shelf.lessons()
        added: list[Lesson] = []
        experiences: list[Experience] = []
        for lesson, origins in read_lines(lines):
            if same_rule(lesson, [*known, *added]) is None:
                added.append(lesson)
                experiences += origins
        await self._shelf.write(added, experiences)
        return len(added)

    async def _known(self, lessons: Sequence[Lesson]) -> list[KnownLesson]:
        experiences = await self._shelf.experiences(lessons)
        known = [KnownLesson(lesson, experiences[lesson["id"]]) for lesson in lessons]
        return sorted(known, key=lambda each: each.last_seen_at, reverse=True)

    async def _uses(self, used: Sequence[Lesson], episode: Episode, better: Sequence[str]) -> dict[str, Use]:
        before = await self._shelf.episodes(episode["task_key"])
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
            replaced = not passed and lesson["task_key"] == episode["task_key"]
            instead = [key for key in better if key != lesson["id"]] if replaced else []
            uses[lesson["id"]] = Use(
                passed=passed,
                expected=expected,
                outcome=outcome(passed, expected),
                replaced_by=instead[-1] if instead else "",
            )
        return uses

    async def _trim(self, lessons: Sequence[Lesson]) -> None:
        for experiences in (await self._shelf.experiences(lessons)).values():
            came_to = [each for each in experiences if each["evidence"]]
            only_used = [each for each in experiences if not each["evidence"]]
            await self._shelf.delete(experiences=[*came_to[MOST_EXPERIENCES:], *only_used[MOST_EXPERIENCES:]])

    async def _forget(self, gone: Sequence[KnownLesson], left: Sequence[KnownLesson]) -> None:
        ids = {each.id for each in gone}
        back = [
            e | {"use": e["use"] | {"replaced_by": ""}}
            for each in left
            for e in each.experiences
            if each.id not in ids and e["use"] and e["use"]["replaced_by"] in ids
        ]
        await self._shelf.write(experiences=back)
        await self._shelf.delete(ids, [e for each in gone for e in each.experiences])


def _came_of(run_id: str, known: Sequence[KnownLesson]) -> tuple[set[str], set[str]]:
    """The runs and the lessons that came of a run, itself included."""
    runs, gone = {run_id}, set[str]()
    while True:
        new = [
            each
            for each in known
            if each.id not in gone and each.evidence and all(e["run_id"] in runs for e, _ in each.evidence)
        ]
        if not new:
            return runs, gone
        gone |= {each.id for each in new}
        runs |= {e["run_id"] for each in new for e in each.experiences if e["use"]}


@asynccontextmanager
async def open_memory(database_url: str | None = None, namespace: str = "default") -> AsyncIterator[Memory]:
    """The memory of a namespace in a database, to look into, to correct, and to carry elsewhere.

    Raises:
        DatabaseError: it cannot be opened.
    """
    async with open_persistence(database_url) as persistence:
        yield Memory(persistence.store, namespace)
