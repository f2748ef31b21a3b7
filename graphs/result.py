"""What a run gives back."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal

from typing_extensions import TypedDict

from reflexion.evaluators import Attempt, CriterionScore
from reflexion.graphs.state import LearnedLesson, State
from reflexion.memory import RecalledLesson
from reflexion.models import CONFIGURATION, PROFILES, Call, Usage
from reflexion.models.prices import what_if
from reflexion.models.statistics import Statistics
from reflexion.models.usage import decimal_text
from reflexion.nodes import Failure, StopReason
from reflexion.nodes.attempts import best_attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage(Usage):
    """What a run used, in all, by role and by model, and what of it trying again took."""

    by_role: dict[str, Usage] = field(default_factory=dict)
    by_model: dict[str, Usage] = field(default_factory=dict)
    """By the model that was asked for."""
    after_first: Usage = field(default_factory=Usage)
    """What came after the first attempt was judged: reflections, plans, and further attempts."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        parts = {"by_role": self.by_role, "by_model": self.by_model}
        return (
            Usage.as_json(self)
            | {name: {key: usage.as_json() for key, usage in part.items()} for name, part in parts.items()}
            | {"after_first": self.after_first.as_json()}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """One attempt of a finished run."""

    number: int
    answer: str
    score: float | None
    """0..1; None where there was no verdict."""
    passed: bool
    feedback: str
    criteria: list[CriterionScore]
    """What a critic says of each criterion, where it was given any."""
    evaluator: str
    advisory: bool
    """The score is not grounded: the opinion of a model that praises everything, or tests that a model wrote itself."""
    reflection: str
    plan: str
    """The approach that this attempt followed."""
    style: str
    duration_s: float
    """Seconds that its calls to the actor's model and its evaluation took."""


class OwnTestResult(TypedDict):
    """A test that was not the user's."""

    source: str
    origin: Literal["model", "task"]
    rejected: str
    """Why it did not count; empty where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The best attempt of a run, and how the run went."""

    answer: str
    """Of the best attempt; empty where there was none."""
    passed: bool
    score: float | None
    """Of the best attempt, 0..1; None where there was no verdict."""
    stop_reason: StopReason
    stop_detail: str
    thread_id: str
    run_id: str
    attempts: tuple[AttemptResult, ...]
    lessons_used: tuple[RecalledLesson, ...]
    lessons_withheld: tuple[RecalledLesson, ...]
    """Would have been used, had this run not been one of those that measure what memory does."""
    lessons_learned: tuple[LearnedLesson, ...]
    usage: RunUsage
    duration_s: float
    """Seconds of work, without the time between a crash and its resumption."""
    latency_ms: dict[str, float | None]
    """p50, p95 and p99 of the requests that were answered, in milliseconds; None where there were none."""
    statistics: dict[str, Statistics] = field(default_factory=dict)
    """By role: outcomes, latency, time to first token and throughput."""
    statistics_by_model: dict[str, Statistics] = field(default_factory=dict)
    """The same by the model that was asked."""
    what_if_usd: dict[str, Decimal | None] = field(default_factory=dict)
    """What the same tokens would have cost on the models of `PROFILES`, in USD by the profile's name."""
    own_tests: tuple[OwnTestResult, ...] = ()
    """The tests that the model wrote itself, where it was to, and the examples of the task beside them."""
    failure: Failure | None = None
    """What failed, where something did."""

    @property
    def advisory(self) -> bool:
        """Whether a score rests on what a model thinks, and on nothing that a person gave."""
        return any(attempt.advisory for attempt in self.attempts)

    @property
    def misconfigured(self) -> bool:
        """Whether a change of the settings, not waiting, would have let the run work."""
        return self.failure is not None and self.failure["kind"] in CONFIGURATION

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, as `reflexion run --json` prints it."""
        fields = asdict(self)
        lists = {key: list(value) for key, value in fields.items() if isinstance(value, tuple)}
        costs = {name: None if cost is None else decimal_text(cost) for name, cost in self.what_if_usd.items()}
        sums = {"advisory": self.advisory, "usage": self.usage.as_json(), "what_if_usd": costs}
        return {**fields, **lists, **sums}


def result_of(state: State, thread_id: str) -> Result:
    """The result of a finished run, read off its state."""
    calls = state["calls"]
    by_role, by_model = _grouped(calls, "role"), _grouped(calls, "model")
    reason = state["stop_reason"]
    assert reason is not None, "the run has ended"
    return Result(
        answer=state["answer"],
        passed=state["passed"],
        score=state["score"],
        stop_reason=reason,
        stop_detail=state["stop_detail"],
        thread_id=thread_id,
        run_id=state["run_id"],
        attempts=tuple(_attempt(attempt, state) for attempt in state["attempts"]),
        lessons_used=tuple(state["lessons_used"]),
        lessons_withheld=tuple(state.get("lessons_withheld", ())),
        lessons_learned=tuple(state["lessons_learned"]),
        usage=RunUsage(
            **asdict(Usage.of(calls)),
            by_role={role: Usage.of(group) for role, group in by_role.items()},
            by_model={model: Usage.of(group) for model, group in by_model.items()},
            after_first=Usage.of(call for call in calls if call["attempt"] > 1 or call["role"] in _BETWEEN_ATTEMPTS),
        ),
        duration_s=round(state["elapsed_s"], 3),
        latency_ms=Statistics.of(calls).latency_ms.as_json(),
        statistics_by_model={model: Statistics.of(group) for model, group in by_model.items()},
        statistics={role: Statistics.of(group) for role, group in by_role.items()},
        what_if_usd=what_if(calls, {name: profile.price for name, profile in PROFILES.items()}),
        own_tests=_own_tests(state),
        failure=state["failure"],
    )


def result_so_far(state: State, thread_id: str, reason: StopReason, detail: str) -> Result | None:
    """What there is of a run that was left as it is; None before its first attempt."""
    best = best_attempt(state.get("attempts", ()))
    if best is None:
        return None
    given = {"answer": best["answer"], "score": best.get("score"), "stop_reason": reason, "stop_detail": detail}
    return result_of({**state, **given}, thread_id)  # type: ignore[typeddict-item]


_BETWEEN_ATTEMPTS = {"reflector", "planner"}


def _own_tests(state: State) -> tuple[OwnTestResult, ...]:
    own = state.get("own_tests")
    return tuple(
        OwnTestResult(source=test["source"], origin=test["origin"], rejected=test["rejected"])
        for test in (own["tests"] if own else ())
    )


def _attempt(attempt: Attempt, state: State) -> AttemptResult:
    asked = sum(c["latency_s"] for c in state["calls"] if (c["role"], c["attempt"]) == ("actor", attempt["number"]))
    return AttemptResult(
        number=attempt["number"],
        answer=attempt["answer"],
        score=attempt.get("score"),
        passed=attempt.get("passed", False),
        feedback=attempt.get("feedback", ""),
        criteria=attempt.get("criteria", []),
        evaluator=attempt.get("evaluator", ""),
        advisory=attempt.get("advisory", False),
        reflection=attempt.get("reflection", ""),
        plan=attempt["plan"],
        style=attempt["style"],
        duration_s=round(asked + attempt.get("duration_s", 0.0), 3),
    )


def _grouped(calls: Iterable[Call], by: Literal["role", "model"]) -> dict[str, list[Call]]:
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call[by], []).append(call)
    return groups
