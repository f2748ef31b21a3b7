"""A person's word before an answer is accepted, or before another attempt is made."""

import time
from typing import Annotated, Any, Literal

from langgraph.types import interrupt
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt
from reflexion.memory import LONGEST_TASK, Reflection
from reflexion.nodes.fields import as_form
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import Delta, Turn

REVIEWER = "reviewer"
"""What stands as the evaluator of an attempt on which the reviewer has had the last word."""

About = Literal["answer", "attempt"]


class Review(TypedDict):
    """The reviewer's last word, as the state keeps it."""

    about: About
    action: str


class ReviewRequest(TypedDict):
    """What a reviewer is shown: the value of the interrupt."""

    about: About
    """`answer`: an attempt has passed and is to be accepted; `attempt`: another one is to be made."""
    task: str
    attempt: int
    """Number of the attempt that is looked at."""
    answer: str
    score: float | None
    feedback: str
    reflection: str
    plan: str
    """The approach for the next attempt."""


def _none_if_blank(text: str | None) -> str | None:
    """Forms send what was left empty as an empty text."""
    return text if text and text.strip() else None


Words = Annotated[str | None, AfterValidator(_none_if_blank)]


class _Decision(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=as_form)

    action: str
    answer: Words = Field(default=None, title="Answer", description="With `edit`: is accepted in place of the agent's.")

    @model_validator(mode="after")
    def _only_what_the_action_takes(self) -> "_Decision":
        given = {name for name, value in self if name != "action" and value is not None}
        takes = {"edit": given - {"feedback"}, "reject": {"feedback"}}.get(self.action, set())
        if given - takes:
            raise ValueError(f"{self.action!r} takes no {', '.join(sorted(given - takes))}")
        if self.action == "edit" and not given:
            raise ValueError("'edit' needs the text that is to be used")
        if "answer" in given and len(given) > 1:
            raise ValueError("an answer ends the run: give it, or a reflection and a plan for another attempt")
        return self


class AnswerDecision(_Decision):
    """What a reviewer says of an answer that has passed."""

    action: Literal["approve", "edit", "reject", "stop"] = Field(
        title="Action",
        description="approve: accept it; edit: accept `answer`; reject: go on trying; stop: end the run.",
    )
    feedback: Words = Field(
        default=None, title="Feedback", description="With `reject`: what is wrong, for the reflector."
    )


class AttemptDecision(_Decision):
    """What a reviewer says before another attempt."""

    action: Literal["approve", "edit", "stop"] = Field(
        title="Action",
        description="approve: try again; edit: with this reflection or plan, or accept `answer`; stop: end the run.",
    )
    reflection: Words = Field(
        default=None, title="Reflection", description="With `edit`: the rule for the next attempt."
    )
    plan: Words = Field(default=None, title="Plan", description="With `edit`: the approach for the next attempt.")


def _a_word_is_an_action(value: Any) -> Any:
    return {"action": value.strip().lower()} if isinstance(value, str) else value


Decision = AnswerDecision | AttemptDecision
_FORMS: dict[About, Any] = {
    "answer": Annotated[AnswerDecision, BeforeValidator(_a_word_is_an_action)],
    "attempt": Annotated[AttemptDecision, BeforeValidator(_a_word_is_an_action)],
}


class ReviewReads(TypedDict):
    """What the node reads."""

    spec: TaskSpec
    attempts: list[Attempt]
    reflections: list[Reflection]
    run_id: str
    plan: str


async def review(state: ReviewReads, turn: Turn) -> Delta:
    """Wait for a decision and carry it out; where to go then is the routing's to say.

    The reviewer's word is a verdict: what he writes is accepted, and what he rejects has failed.

    Raises:
        pydantic.ValidationError: the answer to the interrupt is no decision; it can be given again.
    """
    last = state["attempts"][-1]
    about: About = "answer" if last.get("passed") else "attempt"
    request = ReviewRequest(
        about=about,
        task=state["spec"]["text"],
        attempt=last["number"],
        answer=last["answer"],
        score=last.get("score"),
        feedback=last.get("feedback", ""),
        reflection=last.get("reflection", ""),
        plan=state["plan"] if about == "attempt" else "",
    )
    decision: Decision = interrupt(request, response_schema=_FORMS[about])
    turn.emit("reviewed", about=about, attempt=last["number"], action=decision.action)
    return {"review": Review(about=about, action=decision.action), **_carried_out(decision, state, turn)}


def read_decision(about: About, decision: Any) -> Decision:
    """A decision as the node will read it.

    Raises:
        pydantic.ValidationError: it is none.
    """
    read: Decision = TypeAdapter(_FORMS[about]).validate_python(decision)
    return read


def _carried_out(decision: Decision, state: ReviewReads, turn: Turn) -> Delta:
    last = state["attempts"][-1]
    if decision.action == "reject":
        feedback = getattr(decision, "feedback", None)
        verdict = {"score": 0.0, "passed": False, "feedback": feedback or "The reviewer rejects it."}
        checks = [feedback] if feedback else []
        return {"attempts": [{"number": last["number"], "evaluator": REVIEWER, "checks": checks, **verdict}]}
    if decision.answer is not None:
        return {"attempts": [_written(decision.answer, last["number"] + 1, state["plan"])]}
    if not isinstance(decision, AttemptDecision):
        return {}
    delta: Delta = {}
    if decision.plan is not None:
        delta["plan"] = decision.plan
    if decision.reflection is not None:
        delta["attempts"] = [{"number": last["number"], "reflection": decision.reflection}]
        if turn.settings.memory:
            delta["reflections"] = [_reflection(decision.reflection, state, turn)]
    return delta


def _written(answer: str, number: int, plan: str) -> Attempt:
    """The reviewer's own answer."""
    return Attempt(
        number=number,
        answer=answer,
        plan=plan,
        style="edited",
        score=1.0,
        passed=True,
        feedback="Written by the reviewer.",
        evaluator=REVIEWER,
        duration_s=0.0,
    )


def _reflection(text: str, state: ReviewReads, turn: Turn) -> Reflection:
    """The reviewer's words in place of the reflection that was kept, if one was."""
    number = state["attempts"][-1]["number"]
    kept = (r for r in state.get("reflections", []) if (r["run_id"], r["attempt"]) == (state["run_id"], number))
    new = Reflection(
        id=turn.step_id,
        run_id=state["run_id"],
        task=state["spec"]["text"][:LONGEST_TASK],
        attempt=number,
        text=text,
        what_failed="",
        created_at=time.time(),
    )
    return {**next(kept, new), "text": text}
