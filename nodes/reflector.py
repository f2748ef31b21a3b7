"""Says in words why the last attempt fell short."""

import time
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt
from reflexion.memory import LONGEST_TASK, RecalledLesson, Reflection, concise, objection
from reflexion.models import ModelError, Reply, Structure, ask_structured, object_of, strict_schema
from reflexion.models.lenient_json import NoJsonError
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import REFUSALS, Delta, Turn
from reflexion.prompts import Marks
from reflexion.prompts.marks import one_line

_TEXT = {"type": "string"}
REFLECTION = Structure(
    "reflection",
    strict_schema(
        what_failed=_TEXT,
        improvement=_TEXT,
    ),
)

LONGEST_REFLECTION = 1_000
"""Characters of a reflection that are kept."""
LONGEST_FEEDBACK = 4_000
"""Characters of feedback that the reflector reads."""


class ReflectorReply(BaseModel):
    """What a reflector answers."""

    model_config = ConfigDict(extra="ignore")

    improvement: str = Field(min_length=1)
    what_failed: str = ""

    @field_validator("improvement", "what_failed", mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        if isinstance(value, list):
            value = "; ".join(str(item) for item in value)
        return one_line(value, LONGEST_REFLECTION) if isinstance(value, str) else "" if value is None else value


class ReflectorReads(TypedDict):
    """What the node reads."""

    spec: TaskSpec
    attempts: list[Attempt]
    lessons_used: list[RecalledLesson]
    run_id: str


async def reflector(state: ReflectorReads, turn: Turn) -> Delta:
    """Turn the failure of the last attempt into one rule; no usable one is no reflection, and no end.

    The next attempt gets the rule in any case; remembered beyond the run is what rests on a real verdict and
    is worth it.
    """
    attempt = state["attempts"][-1]
    marks = Marks()
    tried = [lesson["text"] for lesson in state["lessons_used"]]
    tried += [earlier["reflection"] for earlier in state["attempts"] if earlier.get("reflection")]
    messages = turn.prompt("reflector").messages(
        task=marks.around("task", state["spec"]["text"]),
        answer=marks.around("answer", attempt["answer"]),
        feedback=marks.around("verdict", attempt.get("feedback", "")[:LONGEST_FEEDBACK]),
        earlier="\n".join(f"- {one_line(text, LONGEST_REFLECTION)}" for text in tried),
    )
    try:
        read = await ask_structured(turn.client("reflector"), messages, turn.meter, REFLECTION, _parse)
    except ModelError as error:
        if error.kind not in REFUSALS:
            raise
        turn.emit("reflected", attempt=attempt["number"], text="", problem=str(error))
        return {}
    if read.value is None:
        turn.emit("reflected", attempt=attempt["number"], text="", problem=read.problem)
        return {}
    text = read.value.improvement
    turn.emit("reflected", attempt=attempt["number"], text=text, what_failed=read.value.what_failed)
    delta: Delta = {"attempts": [{"number": attempt["number"], "reflection": text}]}
    rule = concise(text)
    if (
        turn.settings.memory
        and not attempt.get("advisory")
        and not objection(rule, attempt["answer"], _report(state["spec"], attempt))
    ):
        delta["reflections"] = [
            Reflection(
                id=turn.step_id,
                run_id=state["run_id"],
                task=state["spec"]["text"][:LONGEST_TASK],
                attempt=attempt["number"],
                text=rule,
                what_failed=read.value.what_failed,
                created_at=time.time(),
            )
        ]
    return delta


def _report(spec: TaskSpec, attempt: Attempt) -> str:
    """The verdict of tests or of an expected answer: its own words are no rule, those of a person's function may be."""
    return attempt.get("feedback", "") if spec["tests"] or spec["expect"] is not None else ""


def _parse(reply: Reply) -> ReflectorReply:
    """A JSON object, or plain prose, which is then taken for the improvement."""
    try:
        found = object_of(reply)
    except NoJsonError:
        if "{" in reply.text or not reply.text:
            raise
        found = {"improvement": reply.text}
    return ReflectorReply.model_validate({str(key).strip().lower(): value for key, value in found.items()})
