"""Last node: names the result and leaves lessons for later runs."""

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt
from reflexion.memory import Lesson, Lessons, RecalledLesson, Reflection, as_lesson
from reflexion.nodes.attempts import best_attempt
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import Delta, StopReason, Turn

TEACHES_NOTHING: frozenset[StopReason] = frozenset({"evaluator_failed", "refused"})
"""After these nothing is stored: there was no verdict to learn from."""

TELLS_WHAT_HELPS: frozenset[StopReason] = frozenset({"passed", "max_attempts", "plateau"})
"""Only these say something about the lessons that a run used: any other run might still have passed."""

UNDER_OTHER_SETTINGS = "the run had been ended under other settings than those it was resumed with"


class RememberReads(TypedDict):
    """What the node reads."""

    spec: TaskSpec
    attempts: list[Attempt]
    reflections: list[Reflection]
    lessons_used: list[RecalledLesson]
    run_id: str


Stop = tuple[StopReason, str]
"""A stop reason, and a sentence on how it came to that."""


async def remember(state: RememberReads, turn: Turn, *, stop: Callable[[Any, Any], Stop | None]) -> Delta:
    """Name the best attempt and the stop reason, store lessons, and credit those that were used.

    Args:
        state: see `RememberReads`.
        turn: see `Turn`.
        stop: the routing's own function, so that the reason is the one by which the run was ended.
    """
    reason, detail = stop(state, turn.settings) or ("max_attempts", UNDER_OTHER_SETTINGS)
    best = best_attempt(state["attempts"])
    learned: list[Lesson] = []
    if turn.settings.memory and turn.store is not None:
        memory = Lessons(turn.store, turn.settings.namespace)
        if reason not in TEACHES_NOTHING:
            learned = lessons_of(state, turn.thread_id)
            await memory.add(learned)
        if reason in TELLS_WHAT_HELPS and _judged(state["attempts"][-1]):
            used = [lesson["id"] for lesson in state["lessons_used"]]
            await memory.credit(used, run_id=state["run_id"], helped=reason == "passed")
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


def lessons_of(state: RememberReads, thread_id: str) -> list[Lesson]:
    """The lessons of a run: what it reflected and thought worth keeping."""
    attempts = {attempt["number"]: attempt for attempt in state["attempts"]}
    lessons = {}
    for reflection in state.get("reflections", []):
        if reflection["run_id"] != state["run_id"]:
            continue
        lesson = as_lesson(reflection, thread_id)
        lesson["evaluator"] = attempts[reflection["attempt"]].get("evaluator", "")
        following = attempts.get(reflection["attempt"] + 1)
        lesson["confirmed"] = following is not None and _judged(following) and following.get("passed", False)
        lessons[lesson["id"]] = lesson
    return list(lessons.values())


def _judged(attempt: Attempt) -> bool:
    """Whether its score says what a lesson was worth: no praise by a model that praises all, nor a reviewer's work."""
    return not attempt.get("advisory") and attempt["style"] != "edited"
