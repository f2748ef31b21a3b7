"""What is judged and what a judgement is: the records that every evaluator, node and report shares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, Protocol, runtime_checkable

from typing_extensions import TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task as the evaluators see it."""

    text: str
    """What is asked for, in the user's words."""

    tests: str = ""
    """Python tests (plain asserts or test functions) that a right answer passes; empty for none."""

    expect: object = None
    """The expected answer, as `reflexion.evaluators.match` reads it; None for none."""

    criteria: Sequence[str] = ()
    """What a critic is to look at: sentences, or `Criterion`s with their weights."""


class CriterionScore(TypedDict):
    """What an evaluator says of one criterion."""

    name: str
    score: float | None
    """0..1; None where it gave none."""
    why: str


class Attempt(TypedDict):
    """One attempt at a task as it lies in the state: plain JSON, filled node by node."""

    number: int
    """1 for the first."""

    answer: str

    plan: str
    """The approach this attempt was to follow; empty for the first."""

    style: Literal["first", "fresh", "revise", "edited"]
    """How it was prompted; `edited` was written by a reviewer."""

    score: NotRequired[float | None]
    """0..1; None where no verdict could be had; absent before the evaluation."""

    passed: NotRequired[bool]
    feedback: NotRequired[str]
    checks: NotRequired[list[str]]
    criteria: NotRequired[list[CriterionScore]]
    evaluator: NotRequired[str]
    advisory: NotRequired[bool]
    reflection: NotRequired[str]
    duration_s: NotRequired[float]

    flaw: NotRequired[Literal["empty", "truncated"]]
    """Why the reply cannot be judged as an answer."""

    repeats: NotRequired[int]
    """The number of an earlier attempt of this run with the same answer."""

    digest: NotRequired[str]
    """Of the whole answer, where only its beginning was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What an evaluator says of one attempt."""

    score: float | None
    """0..1, or None: no verdict. None is neither a low score nor a high one, and ends the run."""

    feedback: str = ""
    """What came out and what was wanted, for the reflector and for people."""

    checks: Sequence[str] = ()
    """The failed checks as statements that the next attempt has to make true, such as `f(2) == 4`."""

    criteria: Sequence[CriterionScore] = ()
    """The score by criteria, where the evaluator has any."""

    evaluator: str = ""
    """Name of the evaluator, as reports show it."""

    advisory: bool = False
    """True where the score is not grounded: a model's opinion of its own kind of work, or tests it wrote itself."""

    def __post_init__(self) -> None:
        """Refuse a score on another scale.

        Raises:
            ValueError: the score is neither None nor within 0..1.
        """
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"score {self.score!r} is outside 0..1; convert it where it is read")


@runtime_checkable
class Evaluator(Protocol):
    """Anything that can judge an attempt."""

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge one attempt; trouble of the evaluator itself is a score of None with the reason as feedback."""
        ...
