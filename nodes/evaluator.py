"""Scores the last attempt."""

import time

from langgraph.errors import GraphBubbleUp
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt, Critic, Evaluation, Evaluator, Limits, Match, Panel, Task, UnitTests
from reflexion.evaluators.passing import passes
from reflexion.models import BudgetExhausted, DeadlineExceeded, ModelError, scrub
from reflexion.nodes.attempts import same_answer
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import Delta, Turn

FLAWS = {
    "empty": "the reply was empty",
    "truncated": "the reply was cut off at the output limit before it was complete; a shorter one is needed",
}


LONGEST_FEEDBACK = 10_000
"""Characters of feedback that are kept: every checkpoint from now on holds them."""
MOST_CHECKS, LONGEST_CHECK = 50, 1_000
"""Failed checks, and criteria, that are kept, and characters of each check."""


class EvaluatorReads(TypedDict):
    """What the node reads."""

    spec: TaskSpec
    attempts: list[Attempt]


async def evaluator(state: EvaluatorReads, turn: Turn) -> Delta:
    """Judge the last attempt; an answer that was given before keeps its verdict and costs nothing."""
    *earlier, attempt = state["attempts"]
    started = time.monotonic()
    repeated = same_answer(attempt, earlier)
    if "flaw" in attempt:
        verdict = Evaluation(score=0.0, feedback=FLAWS[attempt["flaw"]], evaluator="form")
    elif repeated is not None:
        verdict = _verdict_of(repeated)
    else:
        verdict = await _judge(state["spec"], attempt, turn)
    judged = {
        "number": attempt["number"],
        # Somebody else's evaluator may hand over numbers and texts of its own types; state is plain JSON.
        "score": None if verdict.score is None else float(verdict.score),
        "passed": passes(verdict.score, turn.settings.threshold),
        "feedback": str(verdict.feedback)[:LONGEST_FEEDBACK],
        "checks": [str(check)[:LONGEST_CHECK] for check in verdict.checks][:MOST_CHECKS],
        "criteria": list(verdict.criteria)[:MOST_CHECKS],
        "evaluator": str(verdict.evaluator),
        "advisory": bool(verdict.advisory),
        "duration_s": round(time.monotonic() - started, 3),
    }
    if repeated is not None:
        judged["repeats"] = repeated["number"]
    shown = {key: value for key, value in judged.items() if key not in {"number", "duration_s"}}
    turn.emit("scored", attempt=attempt["number"], **shown)
    return {"attempts": [judged]}


async def _judge(spec: TaskSpec, attempt: Attempt, turn: Turn) -> Evaluation:
    task = Task(text=spec["text"], tests=spec["tests"], expect=spec["expect"], criteria=spec["criteria"])
    own = turn.kit.evaluator
    if own is None:
        return await choose(task, turn).evaluate(task, attempt)
    name = str(getattr(own, "name", type(own).__name__))
    try:
        verdict: object = await turn.within_deadline(lambda: own.evaluate(task, attempt))
        if isinstance(verdict, Evaluation):
            return verdict
        reason = f"{name} returned {verdict!r} instead of an Evaluation"
    except (ModelError, BudgetExhausted, DeadlineExceeded, GraphBubbleUp):
        raise
    except Exception as error:  # noqa: BLE001 - anybody's code; without a verdict the run ends
        reason = f"{name} failed: {type(error).__name__}: {error}"
    return Evaluation(score=None, feedback=scrub(reason), evaluator=name)


def choose(task: Task, turn: Turn) -> Evaluator:
    """The evaluators that fit a task: what can be checked is checked, and only then is a critic asked."""
    checks: list[Evaluator] = []
    settings = turn.settings
    seconds = settings.test_timeout_s
    limits = Limits(wall_s=seconds, cpu_s=seconds, strict=settings.sandbox_strict)
    if task.tests:
        checks.append(UnitTests(limits))
    if task.expect is not None:
        checks.append(Match(limits))
    if task.criteria or not checks:
        critic = Critic(
            turn.client("evaluator"),
            turn.meter,
            turn.prompts,
            settings.lang,
            threshold=settings.threshold,
            samples=settings.critic_samples,
        )
        checks.append(critic)
    return checks[0] if len(checks) == 1 else Panel(checks)


def _verdict_of(attempt: Attempt) -> Evaluation:
    return Evaluation(
        score=attempt.get("score"),
        feedback=attempt.get("feedback", ""),
        checks=attempt.get("checks", []),
        criteria=attempt.get("criteria", []),
        evaluator=attempt.get("evaluator", ""),
        advisory=attempt.get("advisory", False),
    )
