"""Last node: names the result, and leaves to later runs how it went and what it has learned."""

import time
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt
from reflexion.memory import (
    LONGEST_VERDICT,
    Episode,
    Evidence,
    Lesson,
    RecalledLesson,
    Reflection,
    make_lesson,
    task_key,
)
from reflexion.models import Call, Usage
from reflexion.nodes.attempts import best_attempt
from reflexion.nodes.recall import TaskSpec, memory_of
from reflexion.nodes.turn import Delta, StopReason, Turn

TEACHES_NOTHING: frozenset[StopReason] = frozenset({"evaluator_failed", "refused"})
"""After these nothing is stored: there was no verdict to learn from."""

LONGEST_TITLE = 200
"""Characters of its task that an episode keeps."""

UNDER_OTHER_SETTINGS = "the run had been ended under other settings than those it was resumed with"


class RememberReads(TypedDict):
    """What the node reads."""

    spec: TaskSpec
    attempts: list[Attempt]
    reflections: list[Reflection]
    lessons_used: list[RecalledLesson]
    lessons_withheld: list[RecalledLesson]
    calls: list[Call]
    run_id: str


Stop = tuple[StopReason, str]
"""A stop reason, and a sentence on how it came to that."""


async def remember(state: RememberReads, turn: Turn, *, stop: Callable[[Any, Any], Stop | None]) -> Delta:
    """Name the best attempt and the stop reason, remember how the run went.

    Args:
        state: see `RememberReads`.
        turn: see `Turn`.
        stop: the routing's own function, so that the reason is the one by which the run was ended.
    """
    reason, detail = stop(state, turn.settings) or ("max_attempts", UNDER_OTHER_SETTINGS)
    best = best_attempt(state["attempts"])
    learned: list[Lesson] = []
    if turn.settings.memory and turn.store is not None and reason not in TEACHES_NOTHING:
        memory = memory_of(turn, turn.store)
        learned = await memory.remember(episode_of(state, turn.thread_id, reason), lessons_of(state, turn.thread_id))
    turn.emit("stopped", reason=reason, detail=detail, attempt=best["number"] if best else None)
    delta: Delta = {
        "answer": best["answer"] if best else "",
        "score": best.get("score") if best else None,
        "passed": reason == "passed",
        "stop_reason": reason,
        "stop_detail": detail,
        "lessons_learned": [{"id": lesson["id"], "text": lesson["text"]} for lesson in learned],
    }
    if state["spec"]["from_messages"] and best:
        delta["messages"] = [AIMessage(best["answer"])]
    return delta


def lessons_of(state: RememberReads, thread_id: str) -> list[tuple[Lesson, Evidence]]:
    """The lessons of a run, and why it came to them: what it reflected and thought worth keeping."""
    attempts = {attempt["number"]: attempt for attempt in state["attempts"]}
    lessons = []
    for reflection in state.get("reflections", []):
        if reflection["run_id"] != state["run_id"]:
            continue
        failed, following = attempts[reflection["attempt"]], attempts.get(reflection["attempt"] + 1)
        evidence = Evidence(
            thread_id=thread_id,
            attempt=reflection["attempt"],
            text=reflection["text"],
            evaluator=failed.get("evaluator", ""),
            verdict=failed.get("feedback", "")[:LONGEST_VERDICT],
            confirmed=following is not None and _judged(following) and following.get("passed", False),
        )
        lessons.append((make_lesson(reflection["task"], reflection["text"], reflection["created_at"]), evidence))
    return lessons


def episode_of(state: RememberReads, thread_id: str, reason: StopReason) -> Episode:
    """How the run went."""
    attempts, task = state["attempts"], state["spec"]["text"]
    first = attempts[0] if attempts else None
    return Episode(
        run_id=state["run_id"],
        thread_id=thread_id,
        task=task[:LONGEST_TITLE],
        task_key=task_key(task),
        scores=[attempt.get("score") for attempt in attempts],
        first_passed=first.get("passed", False) if first and _judged(first) else None,
        passed=reason == "passed",
        stop_reason=reason,
        cost_usd=Usage.of(state.get("calls", [])).as_json()["cost_usd"],
        lessons_used=[lesson["id"] for lesson in state["lessons_used"]],
        lessons_withheld=[lesson["id"] for lesson in state.get("lessons_withheld", [])],
        lessons_learned=[],
        at=time.time(),
    )


def _judged(attempt: Attempt) -> bool:
    """Whether its score says what a lesson was worth: no praise by a model that praises all, nor a reviewer's work."""
    grounded = not attempt.get("advisory") and attempt["style"] != "edited"
    return grounded and attempt.get("score") is not None
