"""Last node: names the result and leaves lessons for later runs."""

from collections.abc import Callable
from typing import Any, TypedDict

from langchain_core.messages import AIMessage

from reflexion.evaluators import Attempt
from reflexion.memory import Lesson, Lessons, RecalledLesson, Reflection, lesson_id, objection
from reflexion.nodes.attempts import best_attempt
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import Delta, StopReason, Turn

TEACHES_NOTHING: frozenset[StopReason] = frozenset({"evaluator_failed", "refused"})
"""After these nothing is stored: there was no verdict to learn from."""


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
    ended = stop(state, turn.settings)
    assert ended is not None, "the routing has ended the run"
    reason, detail = ended
    best = best_attempt(state["attempts"])
    learned: list[Lesson] = []
    if turn.settings.memory and turn.store is not None:
        memory = Lessons(turn.store, turn.settings.namespace)
        if reason not in TEACHES_NOTHING:
            learned = lessons_of(state, turn.thread_id)
            await memory.add(learned)
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
    """The lessons of a run: each reflection on a real verdict that is worth keeping."""
    attempts = {attempt["number"]: attempt for attempt in state["attempts"]}
    lessons = {}
    for reflection in state["reflections"]:
        if reflection["run_id"] != state["run_id"]:
            continue
        attempt = attempts[reflection["attempt"]]
        if attempt.get("advisory") or objection(reflection["text"], attempt["answer"]):
            continue
        following = attempts.get(attempt["number"] + 1)
        key = lesson_id(reflection["task"], reflection["text"])
        lessons[key] = Lesson(
            id=key,
            task=reflection["task"],
            text=reflection["text"],
            evaluator=attempt.get("evaluator", ""),
            thread_id=thread_id,
            run_id=state["run_id"],
            attempt=attempt["number"],
            confirmed=bool(following and following.get("passed")),
            created_at=reflection["created_at"],
            last_seen_at=reflection["created_at"],
            times_seen=1,
            times_used=0,
            times_helped=0,
            credited_run="",
        )
    return list(lessons.values())
