"""How much a memory keeps, and what goes when it is too much."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reflexion.memory.choice import chance
from reflexion.memory.records import Experience
from reflexion.memory.worth import KnownLesson

MOST_LESSONS = 10_000
"""Lessons that a namespace keeps."""
MOST_OF_TASK = 50
"""Lessons that a task keeps."""
MOST_EXPERIENCES = 100
"""Runs that used a lesson, and runs that came to it, of which each lesson knows: the last ones."""
MOST_EPISODES = 2_000
"""Episodes that a namespace keeps: the last ones."""
DAY_S = 24 * 3600.0
OLDEST_EPISODE_S = 180 * DAY_S
"""How long they are kept at the most, in seconds."""
SPARED = 0.9
"""Share that is left of too many, so that not every run has to make room."""
LOOKS = 10
"""How often, on average, a namespace is looked through while as many runs end in it as it keeps records."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How many lessons a namespace keeps, and how long."""

    lessons: int = MOST_LESSONS
    """So many are left when it is pruned; until then there may be a tenth more."""
    days: float | None = None
    """A lesson that no run came to or used for longer is not recalled, and goes; None for never."""

    def since(self, now: float) -> float:
        """When a lesson has to have been seen or used; seconds since 1970, as `now`."""
        return float("-inf") if self.days is None else now - self.days * DAY_S


def due(run_id: str, what: str, most: int) -> bool:
    """Whether, by chance, this run looks for records that are too many: the rarer, the more are kept.

    So a run pays for as much of the reading as for `LOOKS` records, however many there are.
    """
    return chance(run_id, what) * most < LOOKS


def surplus(known: Collection[KnownLesson], most: int) -> list[KnownLesson]:
    """Which go where there may be so many: the retired ones first, then those seen or used longest ago."""
    ranked = sorted(known, key=lambda each: (each.state != "retired", each.last_seen_at), reverse=True)
    return ranked[most:]


def worn(experiences: Sequence[Experience]) -> list[Experience]:
    """What a lesson need not know any more, of what runs made of it, newest first."""
    came_to = [each for each in experiences if each["evidence"]]
    only_used = [each for each in experiences if each["use"] and not each["evidence"]]
    return [*came_to[MOST_EXPERIENCES:], *only_used[MOST_EXPERIENCES:]]
