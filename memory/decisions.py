"""Decisions about lessons apart from any run: what each may do, and the records that it leaves."""

from collections.abc import Sequence
from dataclasses import dataclass

from reflexion.memory.quality import objection
from reflexion.memory.records import Decision, Experience, Lesson, Operation, make_lesson
from reflexion.memory.upkeep import same_rule
from reflexion.memory.worth import KnownLesson

FEWEST: dict[Operation, int] = {"ADD": 1, "EDIT": 1, "MERGE": 2, "RETIRE": 1}
"""Lessons that an operation has to name."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is to be done with lessons."""

    operation: Operation
    lessons: tuple[KnownLesson, ...]
    """ADD: what the new one follows from; EDIT: the one; MERGE: those that become one; RETIRE: those that go."""
    text: str
    """Of the lesson that comes of it; empty for RETIRE."""
    why: str

    @property
    def made(self) -> Lesson | None:
        """The lesson that comes of it, with the task of the one that the most runs came to."""
        if self.operation == "RETIRE":
            return None
        home = max(self.lessons, key=lambda each: each.seen)
        return make_lesson(home.lesson["task"], self.text, home.lesson["created_at"])

    @property
    def replaced(self) -> list[KnownLesson]:
        """The lessons that go."""
        made = self.made
        return (
            [] if self.operation == "ADD" else [each for each in self.lessons if made is None or each.id != made["id"]]
        )


def refusal(change: Change, others: Sequence[KnownLesson]) -> str:
    """Why a change must not be made; empty where nothing speaks against it.

    Args:
        change: what is to be done.
        others: the lessons that are known besides those that it names.
    """
    named = len({each.id for each in change.lessons})
    if named < FEWEST[change.operation] or (change.operation == "EDIT" and named > 1):
        return f"{change.operation} cannot be done with {named} lesson{'' if named == 1 else 's'}"
    if any(each.proven for each in change.replaced):
        return "a lesson that has proved itself keeps its words"
    made = change.made
    if made is None:
        return ""
    if why := objection(change.text, ""):
        return why
    if change.operation == "EDIT" and not change.replaced:
        return "changes nothing"
    told = others if change.operation != "ADD" else [*others, *change.lessons]
    if same := same_rule(made, [each.lesson for each in told]):
        return f"says what {same['id']} says"
    return ""


def records_of(change: Change, decision_id: str, at: float) -> tuple[list[Lesson], list[Experience]]:
    """What is written for a change: the new lesson, and for each lesson that it is about, what was decided."""

    def decided(lesson_id: str, *, retires: bool) -> Experience:
        decision = Decision(
            operation=change.operation,
            why=change.why,
            retires=retires,
            replaced_by=made["id"] if made and retires else "",
            of=[] if retires else [each.id for each in change.lessons],
            carried=[] if retires or change.operation == "ADD" else carried,
        )
        return Experience(lesson_id=lesson_id, run_id=decision_id, at=at, evidence=None, use=None, decision=decision)

    made = change.made
    carried = [each for lesson in change.replaced for each in lesson.evidence]
    new = made is not None and all(each.id != made["id"] for each in change.lessons)
    experiences = [decided(each.id, retires=True) for each in change.replaced]
    if made:
        experiences.append(decided(made["id"], retires=False))
    return [made] if made and new else [], experiences
