"""What a lesson has turned out to be worth: worked out from what runs made of it, and never stored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from reflexion.memory.records import Carried, Decision, Experience, Lesson, Outcome, State, Use
from reflexion.models.intervals import Rate

USELESS_BELOW = 0.2
"""A lesson is retired when surely less than this share of its uses passed: after 16 of which none did."""


def outcome(passed: bool, expected: float) -> Outcome:
    """What a single use of a lesson looks like: it helped or hurt where what came was not to be expected without it."""
    if passed and expected <= 0.5:
        return "helped"
    return "hurt" if not passed and expected >= 0.5 else "neither"


@dataclass(frozen=True)
class KnownLesson:
    """A lesson, and all that is known of it."""

    lesson: Lesson
    experiences: Sequence[Experience] = field(repr=False)
    """Newest first."""
    superseded_by: str = ""
    """The lesson that took its place, as long as that one, or what took its place in turn, is in use; else empty."""

    @property
    def id(self) -> str:
        """Of the lesson."""
        return self.lesson["id"]

    @cached_property
    def evidence(self) -> list[Carried]:
        """The runs that came to the lesson, or to one that it took the place of, newest first."""
        own = [
            Carried(run_id=each["run_id"], at=each["at"], evidence=each["evidence"])
            for each in self.experiences
            if each["evidence"]
        ]
        carried = [each for _, decision in self.decisions for each in decision["carried"]]
        return sorted([*own, *carried], key=lambda each: each["at"], reverse=True)

    @property
    def decisions(self) -> list[tuple[Experience, Decision]]:
        """What was decided about it apart from any run, newest first."""
        return [(each, decision) for each in self.experiences if (decision := each.get("decision"))]

    @property
    def origins(self) -> set[str]:
        """The ids of the runs, and of the decisions, but for which it would not be there."""
        made = {
            each["run_id"]
            for each, decision in self.decisions
            if not decision["retires"] and self.id not in decision["of"]
        }
        return made | {each["run_id"] for each in self.experiences if each["evidence"]}

    @property
    def seen(self) -> int:
        """How many runs came to it."""
        return len(self.evidence) + self._earlier("seen")

    @property
    def last_seen_at(self) -> float:
        """When a run last came to it or used it, in seconds since 1970."""
        return max([self.lesson["created_at"], *(each["at"] for each in self.experiences)])

    @property
    def confirmed(self) -> bool:
        """Whether, in one of the runs that came to it, the next attempt passed."""
        return any(each["evidence"]["confirmed"] for each in self.evidence)

    @property
    def used(self) -> int:
        """How many runs used it and had a verdict."""
        return len(self._uses) + self._earlier("used")

    @property
    def helped(self) -> int:
        """Uses that passed where that was not to be expected."""
        return self._count("helped") + self._earlier("helped")

    @property
    def hurt(self) -> int:
        """Uses that failed where that was not to be expected."""
        return self._count("hurt")

    @property
    def passed(self) -> Rate:
        """How many of its uses passed."""
        return Rate(sum(use["passed"] for use in self._uses) + self._earlier("helped"), self.used)

    @property
    def expected(self) -> float:
        """Which share of them was to pass without it, 0..1."""
        # Of uses in an older form nothing was expected.
        known = sum(use["expected"] for use in self._uses) + self._earlier("used") / 2
        return known / self.used if self.used else 0.5

    @property
    def gain(self) -> float:
        """What it adds to the pass rate, -1..1, drawn towards 0 where little is known."""
        return (self.passed.count - self.expected * self.used) / (self.used + 2)

    @cached_property
    def put_aside(self) -> str | None:
        """The lesson that was put in its place, empty for none; None where it was left in its place, or put back.

        It is back when a run comes to it again, and stays where it is proven.
        """
        for each in self.experiences:
            decision, use = each.get("decision"), each["use"]
            if decision and decision["retires"]:
                return decision["replaced_by"]
            if use and use["replaced_by"]:
                return None if self.proven else use["replaced_by"]
            if decision or each["evidence"]:
                return None
        return None

    @cached_property
    def state(self) -> State:
        """Where it stands, by 95 % bounds: only `candidate` and `active` lessons are ever recalled."""
        if self.used and self.passed.high < self.expected:
            return "quarantined"
        if self.superseded_by or self.put_aside == "" or (self.used and self.passed.high < USELESS_BELOW):
            return "retired"
        return "active" if self.confirmed or self.proven else "candidate"

    @property
    def proven(self) -> bool:
        """Whether its uses surely pass more often than was to be expected without it."""
        return self.used > 0 and self.passed.low > self.expected

    @property
    def usable(self) -> bool:
        """Whether it may be recalled."""
        return self.state in {"candidate", "active"}

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            **{name: self.lesson[name] for name in ("id", "task", "text", "created_at")},
            **{name: getattr(self, name) for name in _COUNTED},
            "evidence": [{"run_id": each["run_id"], "at": each["at"], **each["evidence"]} for each in self.evidence],
            "uses": [
                {"run_id": each["run_id"], "at": each["at"], **each["use"]} for each in self.experiences if each["use"]
            ],
            "decisions": [
                {"run_id": each["run_id"], "at": each["at"], "operation": decision["operation"], "why": decision["why"]}
                for each, decision in self.decisions
            ],
        }

    @property
    def _uses(self) -> list[Use]:
        return [each["use"] for each in self.experiences if each["use"]]

    def _count(self, wanted: Outcome) -> int:
        return sum(use["outcome"] == wanted for use in self._uses)

    def _earlier(self, name: str) -> int:
        earlier = self.lesson["earlier"]
        return earlier[name] if earlier else 0  # type: ignore[literal-required]


def know(lessons: Iterable[Lesson], experiences: Mapping[str, Sequence[Experience]]) -> dict[str, KnownLesson]:
    """What is known of each of these lessons, by id; of what took the place of one, only what is among them counts."""
    alone = {lesson["id"]: KnownLesson(lesson, experiences.get(lesson["id"], ())) for lesson in lessons}
    return {key: replace(each, superseded_by=_successor(each, alone)) for key, each in alone.items()}


def _successor(lesson: KnownLesson, alone: Mapping[str, KnownLesson]) -> str:
    seen, key = {lesson.id}, lesson.put_aside
    while key and key not in seen and key in alone:
        if alone[key].usable:
            return lesson.put_aside or ""
        seen.add(key)
        key = alone[key].put_aside
    return ""


_COUNTED = ("state", "superseded_by", "confirmed", "seen", "used", "helped", "hurt", "gain", "last_seen_at")
