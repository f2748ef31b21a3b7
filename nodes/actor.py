"""Attempts the task."""

from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt, asks_for_code, function_asked_for
from reflexion.memory import LONGEST_LESSON, RecalledLesson
from reflexion.models import DeadlineExceeded, ModelError, Reply, scrub
from reflexion.models.replies import read_reply, strip_reasoning
from reflexion.nodes.attempts import NEARLY_RIGHT, best_attempt
from reflexion.nodes.fields import AttemptStyle
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import Delta, Turn
from reflexion.prompts.marks import one_line

MOST_CHECKS = 6
LONGEST_CHECK = 400
"""Characters."""
RECENT_REFLECTIONS = 3
"""How many of the run's own lessons the prompt holds, as in Shinn et al. (their memory holds one to three)."""

FIRST_TEMPERATURE, LATER_TEMPERATURE = 0.0, 0.7
"""Of the embedded model: its best guess first, then something else."""


class ActorReads(TypedDict):
    """What the node reads."""

    spec: TaskSpec
    attempts: list[Attempt]
    lessons_used: list[RecalledLesson]
    plan: str


async def actor(state: ActorReads, turn: Turn) -> Delta:
    """Make one attempt, prompted by what is known so far."""
    attempts = state["attempts"]
    number = len(attempts) + 1
    style = choose_style(attempts, turn.settings.attempt_style)
    turn.emit("attempt_started", attempt=number, style=style)
    messages = compose(state, turn, style)
    if turn.kit.actor is None:
        reply = await _ask_model(messages, number, turn)
    else:
        reply = await _ask_own(messages, state, turn)
    attempt = Attempt(number=number, answer=reply.text, plan=state["plan"], style=style)
    if not reply.text:
        attempt["flaw"] = "empty"
    if reply.truncated:
        attempt["flaw"] = "truncated"
    turn.emit("attempted", attempt=number, answer=reply.text)
    return {"attempts": [attempt]}


def choose_style(attempts: Sequence[Attempt], style: AttemptStyle) -> Literal["first", "fresh", "revise"]:
    """How to prompt the next attempt."""
    best = best_attempt(attempts)
    if best is None:
        return "first"
    if style == "fresh" or "flaw" in best:
        return "fresh"
    return "revise" if style == "revise" or (best.get("score") or 0) >= NEARLY_RIGHT else "fresh"


def compose(state: ActorReads, turn: Turn, style: str) -> list[BaseMessage]:
    """The prompt: the task, the rules learned, the checks that failed, and the plan."""
    spec, attempts = state["spec"], state["attempts"]
    tested = spec["tests"] or (turn.settings.generate_tests and function_asked_for(spec["text"]))
    code = asks_for_code(spec["expect"]) if spec["expect"] is not None else tested
    form = "code" if code else "match" if spec["expect"] is not None else "text"
    common = {
        "form": turn.prompt("actor").sections.get(f"form: {form}", ""),
        "rules": _bullets(_rules(state), LONGEST_LESSON),
        "checks": _bullets(_failed_checks(attempts), LONGEST_CHECK),
        "plan": state["plan"],
        "task": spec["text"],
    }
    best = best_attempt(attempts)
    if style != "revise" or best is None:
        return turn.prompt("actor").messages(**common)
    return turn.prompt("reviser").messages(**common, answer=best["answer"], feedback=best.get("feedback", ""))


def _rules(state: ActorReads) -> list[str]:
    own = [attempt.get("reflection", "") for attempt in state["attempts"]][-RECENT_REFLECTIONS:]
    return [*(lesson["text"] for lesson in state["lessons_used"]), *own]


def _failed_checks(attempts: Sequence[Attempt]) -> list[str]:
    """What attempts of this run got wrong, the latest first."""
    return [check for attempt in reversed(attempts) for check in attempt.get("checks", [])][: 2 * MOST_CHECKS]


def _bullets(lines: Sequence[str], longest: int) -> str:
    distinct = dict.fromkeys(one_line(line, longest) for line in lines if line.strip())
    return "\n".join(f"- {line}" for line in list(distinct)[:MOST_CHECKS])


async def _ask_model(messages: list[BaseMessage], number: int, turn: Turn) -> Reply:
    client = turn.client("actor")
    temperature = turn.settings.temperature
    if temperature is None and client.embedded:
        temperature = FIRST_TEMPERATURE if number == 1 else LATER_TEMPERATURE

    return await client.complete(
        messages,
        turn.meter,
        temperature=temperature,
        max_tokens=turn.settings.max_tokens,
    )


async def _ask_own(messages: list[BaseMessage], state: ActorReads, turn: Turn) -> Reply:
    """Let the caller's own actor work; it gets the prompt and, apart from it, what the prompt is made of."""
    own = turn.kit.actor
    assert own is not None
    given = {
        "messages": messages,
        "task": state["spec"]["text"],
        "plan": state["plan"],
        "rules": _rules(state),
        "checks": _failed_checks(state["attempts"]),
        "attempt": len(state["attempts"]) + 1,
    }
    try:
        reply = _read(await turn.within_deadline(lambda: own.ainvoke(given, {"run_name": "actor"})))
    except (DeadlineExceeded, GraphBubbleUp):
        raise
    except Exception as error:
        # Whatever it raises, the attempts before it must not be lost.
        raise ModelError("actor_failed", f"the actor failed: {type(error).__name__}: {scrub(str(error))}") from error
    if reply.refusal:
        raise ModelError("refused", f"the actor refused: {reply.refusal}")
    return reply


def _read(result: Any) -> Reply:
    """The answer in what an actor returns: a text, a message, or a state with `answer` or `messages`."""
    match result:
        case str():
            return Reply(strip_reasoning(result).strip())
        case AIMessage():
            return read_reply(result)
        case BaseMessage():
            return _read(str(result.text))
        case {"answer": answer}:
            return _read(answer)
        case {"messages": [*_, last]}:
            return _read(last)
    raise TypeError(
        f"the actor returned {type(result).__name__}; a text, a message, or a dict with answer or messages is needed"
    )
