"""What memory does: runs that were given a lesson against runs of which, by chance, it was withheld.

Only these two may be compared: a lesson is recalled for tasks on which something went wrong before, so runs that had
nothing to recall had easier tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reflexion.memory.records import Episode
from reflexion.models.intervals import Estimate, Rate, difference

MATTERS = 0.05
"""A difference in the pass rate below this is as good as none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How often the first attempt passed, with and without."""

    given: Rate
    """Of runs that used a lesson."""
    withheld: Rate
    """Of runs that would have."""

    @property
    def difference(self) -> Estimate | None:
        """What the lesson adds to the pass rate; None where one side is empty."""
        return difference(self.given, self.withheld)

    @property
    def verdict(self) -> str:
        """In a sentence."""
        found = self.difference
        if found is None:
            missing = "used a lesson" if not self.given.of else "had a lesson withheld"
            return f"cannot be told: no run with a verdict {missing}"
        span = f"{found.value:+.0%} ({found.low:+.0%} to {found.high:+.0%})"
        if found.low > 0:
            return f"memory helps: {span} first attempts pass"
        if found.high < 0:
            return f"memory does harm: {span} first attempts pass; use another namespace, or switch it off"
        if found.high < MATTERS:
            return f"memory does not help: {span} first attempts pass"
        runs = f"{self.given.of} runs with and {self.withheld.of} without"
        return f"cannot be told yet: {span} first attempts pass, by {runs}"

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        found = self.difference
        return {
            "with": self.given.as_json(),
            "without": self.withheld.as_json(),
            "difference": None if found is None else found.as_json(),
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Effect:
    """What memory does in all, and what each lesson does."""

    total: Comparison
    by_lesson: dict[str, Comparison]
    without_lessons: Rate
    """First attempts of runs that had nothing to recall; not to be compared with the others."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "total": self.total.as_json(),
            "without_lessons": self.without_lessons.as_json(),
            "by_lesson": {key: comparison.as_json() for key, comparison in self.by_lesson.items()},
        }


def effect_of(episodes: Sequence[Episode]) -> Effect:
    """What memory did in these runs; those without a verdict on their first attempt say nothing."""
    judged = [each for each in episodes if each["first_passed"] is not None]
    ids = dict.fromkeys(key for each in judged for key in [*each["lessons_used"], *each["lessons_withheld"]])

    def compared(key: str | None) -> Comparison:
        return Comparison(
            _passed([e for e in judged if (key in e["lessons_used"] if key else e["lessons_used"])]),
            _passed([e for e in judged if (key in e["lessons_withheld"] if key else e["lessons_withheld"])]),
        )

    rest = [each for each in judged if not each["lessons_used"] and not each["lessons_withheld"]]
    return Effect(compared(None), {key: compared(key) for key in ids}, _passed(rest))


def _passed(episodes: Sequence[Episode]) -> Rate:
    return Rate(sum(each["first_passed"] is True for each in episodes), len(episodes))
