"""Turns the reflection into the approach for the next attempt."""

from typing_extensions import TypedDict

from reflexion.evaluators import Attempt
from reflexion.models import ModelError
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import REFUSALS, Delta, Turn
from reflexion.prompts import Marks

LONGEST_PLAN = 2_000
"""Characters of a plan that are kept."""
SMALL_PLAN = 160
"""Tokens of a plan of the embedded model."""
LONGEST_FEEDBACK = 2_000
"""Characters of feedback that the planner reads."""


class PlannerReads(TypedDict):
    """What the node reads."""

    spec: TaskSpec
    attempts: list[Attempt]


async def planner(state: PlannerReads, turn: Turn) -> Delta:
    """Plan the next attempt; a repeated answer asks for another approach."""
    attempt = state["attempts"][-1]
    if turn.measures.no_planner or not turn.settings.planner:
        return {"plan": ""}
    prompt = turn.prompt("planner")
    marks = Marks()
    messages = prompt.messages(
        task=marks.around("task", state["spec"]["text"]),
        feedback=marks.around("verdict", attempt.get("feedback", "")[:LONGEST_FEEDBACK]),
        lesson=marks.around("lesson", attempt.get("reflection", "")),
        different=prompt.sections.get("different", "") if "repeats" in attempt else "",
    )
    try:
        client = turn.client("planner")
        # A small model plans on and on, and what it says last is worth least.
        limit = SMALL_PLAN if client.embedded else None
        reply = await client.complete(messages, turn.meter, max_tokens=limit)
    except ModelError as error:
        if error.kind not in REFUSALS:
            raise
        plan = ""
    else:
        plan = reply.text[:LONGEST_PLAN]
    turn.emit("planned", attempt=attempt["number"] + 1, text=plan)
    return {"plan": plan}
