"""What a run gives back."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reflexion.evaluators import Attempt
from reflexion.graphs.state import LearnedLesson, State
from reflexion.memory import RecalledLesson
from reflexion.models import CONFIGURATION, Usage
from reflexion.nodes import Failure, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage(Usage):
    """What a run used, in all and by role."""

    by_role: dict[str, Usage] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return Usage.as_json(self) | {"by_role": {role: usage.as_json() for role, usage in self.by_role.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """One attempt of a finished run."""

    number: int
    answer: str
    score: float | None
    """0..1; None where there was no verdict."""
    passed: bool
    feedback: str
    evaluator: str
    advisory: bool
    """The score is the opinion of a model that praises everything."""
    reflection: str
    plan: str
    """The approach that this attempt followed."""
    style: str
    duration_s: float
    """Seconds that its calls to the actor's model and its evaluation took."""


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
    lessons_learned: tuple[LearnedLesson, ...]
    usage: RunUsage
    duration_s: float
    """Seconds of work, without the time between a crash and its resumption."""
    latency_ms: dict[str, float | None]
    """p50, p95 and p99 of the requests, in milliseconds; None where there were none."""
    failure: Failure | None = None
    """What failed, where something did."""

    @property
    def advisory(self) -> bool:
        """Whether the result rests on the opinion of a model that praises everything."""
        return any(attempt.advisory for attempt in self.attempts)

    @property
    def misconfigured(self) -> bool:
        """Whether a change of the settings, not waiting, would have let the run work."""
        return self.failure is not None and self.failure["kind"] in CONFIGURATION

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, as `reflexion run --json` prints it."""
        lists = {key: list(value) for key, value in asdict(self).items() if isinstance(value, tuple)}
        return {**asdict(self), **lists, "usage": self.usage.as_json()}


def result_of(state: State, thread_id: str) -> Result:
    """The result of a finished run, read off its state."""
    calls = state["calls"]
    usage = Usage.of(calls)
    by_role = {
        role: Usage.of(c for c in calls if c["role"] == role) for role in dict.fromkeys(c["role"] for c in calls)
    }
    latencies = sorted(call["latency_s"] * 1000 for call in calls)
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
        lessons_learned=tuple(state["lessons_learned"]),
        usage=RunUsage(**asdict(usage), by_role=by_role),
        duration_s=round(state["elapsed_s"], 3),
        latency_ms={f"p{share}": percentile(latencies, share) for share in (50, 95, 99)},
        failure=state["failure"],
    )


def _attempt(attempt: Attempt, state: State) -> AttemptResult:
    asked = sum(c["latency_s"] for c in state["calls"] if (c["role"], c["attempt"]) == ("actor", attempt["number"]))
    return AttemptResult(
        number=attempt["number"],
        answer=attempt["answer"],
        score=attempt.get("score"),
        passed=attempt.get("passed", False),
        feedback=attempt.get("feedback", ""),
        evaluator=attempt.get("evaluator", ""),
        advisory=attempt.get("advisory", False),
        reflection=attempt.get("reflection", ""),
        plan=attempt["plan"],
        style=attempt["style"],
        duration_s=round(asked + attempt.get("duration_s", 0.0), 3),
    )


def percentile(ordered: Sequence[float], share: int) -> float | None:
    """The value that `share` percent of the ordered values do not exceed (nearest rank); None of nothing."""
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)], 1)
