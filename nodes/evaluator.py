"""Scores the last attempt."""

import time
from dataclasses import replace
from typing import Any

from langgraph.errors import GraphBubbleUp
from typing_extensions import TypedDict

from reflexion.evaluators import (
    Attempt,
    Critic,
    Evaluation,
    Evaluator,
    GeneratedTests,
    Limits,
    Match,
    OwnTests,
    Panel,
    Task,
    UnitTests,
    usable,
    write_tests,
)
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
    own_tests: OwnTests | None


async def evaluator(state: EvaluatorReads, turn: Turn) -> Delta:
    """Judge the last attempt; an answer that was given before keeps its verdict and costs nothing."""
    *earlier, attempt = state["attempts"]
    started = time.monotonic()
    delta: Delta = {}
    repeated = same_answer(attempt, earlier)
    if "flaw" in attempt:
        verdict = Evaluation(score=0.0, feedback=FLAWS[attempt["flaw"]], evaluator="form")
    elif repeated is not None:
        verdict = _verdict_of(repeated)
    else:
        verdict, delta = await judge(state, turn)
    judged = _record(verdict, turn)
    if repeated is not None:
        judged["repeats"] = repeated["number"]
    turn.emit("scored", attempt=attempt["number"], **judged)
    judged |= {"number": attempt["number"], "duration_s": round(time.monotonic() - started, 3)}
    return {**delta, "attempts": [*delta.get("attempts", []), judged]}


def _record(verdict: Evaluation, turn: Turn) -> dict[str, Any]:
    """What an attempt keeps of its verdict."""
    return {
        # Somebody else's evaluator may hand over numbers and texts of its own types; state is plain JSON.
        "score": None if verdict.score is None else float(verdict.score),
        "passed": passes(verdict.score, turn.settings.threshold),
        "feedback": str(verdict.feedback)[:LONGEST_FEEDBACK],
        "checks": [str(check)[:LONGEST_CHECK] for check in verdict.checks][:MOST_CHECKS],
        "criteria": list(verdict.criteria)[:MOST_CHECKS],
        "evaluator": str(verdict.evaluator),
        "advisory": bool(verdict.advisory),
    }


async def judge(state: EvaluatorReads, turn: Turn) -> tuple[Evaluation, Delta]:
    """Ask the evaluators that fit the task about the last attempt.

    Returns:
        The verdict, and what the state keeps beside it of tests that the model has written.
    """
    spec, attempt = state["spec"], state["attempts"][-1]
    task = Task(text=spec["text"], tests=spec["tests"], expect=spec["expect"], criteria=spec["criteria"])
    if turn.kit.evaluator is not None:
        return await _ask_own(turn.kit.evaluator, task, attempt, turn), {}
    if turn.settings.generate_tests and not task.tests and task.expect is None:
        return await _by_own_tests(state, task, attempt, turn)
    return await choose(task, turn).evaluate(task, attempt), {}


async def _by_own_tests(state: EvaluatorReads, task: Task, attempt: Attempt, turn: Turn) -> tuple[Evaluation, Delta]:
    """Let the model's own tests judge, which are written at the first time; without a usable one a critic does."""
    limits = _limits(turn)
    own_tests = state.get("own_tests") or await write_tests(
        task.text, turn.client("evaluator"), turn.meter, turn.prompts, turn.settings.lang, limits
    )
    if not usable(own_tests):
        verdict = await choose(task, turn).evaluate(task, attempt)
        why = f"No tests, {own_tests['problem']}; a critic judged."
        return replace(verdict, feedback=f"{why}\n{verdict.feedback}".rstrip()), {"own_tests": own_tests}
    generated = GeneratedTests(own_tests, limits)
    verdict = await choose(task, turn, generated).evaluate(task, attempt)
    reconsidered = [
        {"number": earlier["number"], **_record(again, turn)}
        for earlier in state["attempts"]
        # What a critic has judged after the tests, or would still have to judge, keeps its verdict.
        if (again := generated.reconsidered.get(earlier.get("repeats", earlier["number"])))
        and earlier.get("evaluator") == GeneratedTests.name
        and not (task.criteria and again.score == 1)
    ]
    return verdict, {"own_tests": generated.own, "attempts": reconsidered}


async def _ask_own(own: Evaluator, task: Task, attempt: Attempt, turn: Turn) -> Evaluation:
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


def choose(task: Task, turn: Turn, generated: GeneratedTests | None = None) -> Evaluator:
    """The evaluators that fit a task: what can be checked is checked, and only then is a critic asked."""
    checks: list[Evaluator] = []
    settings, limits = turn.settings, _limits(turn)
    if task.tests:
        checks.append(UnitTests(limits))
    if task.expect is not None:
        checks.append(Match(limits))
    if generated is not None:
        checks.append(generated)
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


def _limits(turn: Turn) -> Limits:
    settings = turn.settings
    seconds = settings.test_timeout_s
    return Limits(wall_s=seconds, cpu_s=seconds, packages=settings.sandbox_packages, strict=settings.sandbox_strict)


def _verdict_of(attempt: Attempt) -> Evaluation:
    return Evaluation(
        score=attempt.get("score"),
        feedback=attempt.get("feedback", ""),
        checks=attempt.get("checks", []),
        criteria=attempt.get("criteria", []),
        evaluator=attempt.get("evaluator", ""),
        advisory=attempt.get("advisory", False),
    )
