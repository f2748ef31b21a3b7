"""The state of a run: plain JSON, put together from the records of the rooms that own them."""

import operator
from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt, OwnTests
from reflexion.memory import RecalledLesson, Reflection, merge_reflections
from reflexion.models import Call
from reflexion.nodes.attempts import merge_attempts
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import Failure, StopReason


class LearnedLesson(TypedDict):
    """A lesson that a run has left."""

    id: str
    text: str


def merge_calls(old: Sequence[Call] | None, new: Sequence[Call] | None) -> list[Call]:
    """The reducer of the ledger: by id."""
    return list({call["id"]: call for call in [*(old or ()), *(new or ())]}.values())


class Input(TypedDict, total=False):
    """What a run is given: a task, or chat messages of which the last human one is the task."""

    task: str
    tests: str
    expect: Any
    criteria: list[str]
    messages: Annotated[list[AnyMessage], add_messages]


class Output(TypedDict, total=False):
    """What a run gives back."""

    answer: str
    passed: bool
    score: float | None
    stop_reason: StopReason
    stop_detail: str
    attempts: Annotated[list[Attempt], merge_attempts]
    lessons_used: list[RecalledLesson]
    lessons_learned: list[LearnedLesson]
    messages: Annotated[list[AnyMessage], add_messages]


class State(TypedDict, total=False):
    """Everything that a thread keeps; `reflections` and `messages` outlive a run, the rest is of the last one."""

    # The input lives for one step, so that nothing of it can leak into the thread's next run.
    task: Annotated[str, EphemeralValue]
    tests: Annotated[str, EphemeralValue]
    expect: Annotated[Any, EphemeralValue]
    criteria: Annotated[list[str], EphemeralValue]

    messages: Annotated[list[AnyMessage], add_messages]
    reflections: Annotated[list[Reflection], merge_reflections]

    run_id: str
    spec: TaskSpec
    attempts: Annotated[list[Attempt], merge_attempts]
    own_tests: OwnTests | None
    """Tests that the model wrote itself, and what the attempts did on them; None before there are any."""
    plan: str
    lessons_used: list[RecalledLesson]
    lessons_learned: list[LearnedLesson]
    calls: Annotated[list[Call], merge_calls]
    elapsed_s: Annotated[float, operator.add]
    failure: Failure | None
    answer: str
    score: float | None
    passed: bool
    stop_reason: StopReason | None
    stop_detail: str

    remaining_steps: RemainingSteps


def fresh() -> dict[str, Any]:
    """The values with which a run starts. An empty list would not clear a reduced channel."""
    return {
        "attempts": Overwrite([]),
        "own_tests": None,
        "plan": "",
        "lessons_used": [],
        "lessons_learned": [],
        "calls": Overwrite([]),
        "elapsed_s": Overwrite(0.0),
        "failure": None,
        "answer": "",
        "score": None,
        "passed": False,
        "stop_reason": None,
        "stop_detail": "",
    }
