"""The state of a run: plain JSON, put together from the records of the rooms that own them."""

from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from pydantic import Field
from typing_extensions import TypedDict

from reflexion.evaluators import Attempt, OwnTests
from reflexion.memory import RecalledLesson, Reflection, merge_reflections
from reflexion.models import Call
from reflexion.nodes.attempts import merge_attempts
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.review import Review
from reflexion.nodes.turn import Failure, StopReason


class LearnedLesson(TypedDict):
    """A lesson that a run has left."""

    id: str
    text: str


def merge_calls(old: Sequence[Call] | None, new: Sequence[Call] | None) -> list[Call]:
    """The reducer of the ledger: by id; None clears it."""
    return [] if new is None else list({call["id"]: call for call in [*(old or ()), *new]}.values())


def add_seconds(old: float, new: float | None) -> float:
    """The reducer of the time that a run has worked; None starts it again."""
    return 0.0 if new is None else old + new


class Input(TypedDict, total=False):
    """What a run is given: a task, or chat messages of which the last human one is the task."""

    task: Annotated[str, Field(title="Task", description="What is to be done; empty where it is a chat message.")]
    tests: Annotated[
        str, Field(title="Tests", description="Python asserts or test functions that a right answer passes.")
    ]
    expect: Annotated[
        Any,
        Field(
            title="Expected answer",
            description="A text, re:PATTERN, num:3.14±0.01 or json:{schema}; not with tests.",
            json_schema_extra={"type": "string"},
        ),
    ]
    criteria: Annotated[
        list[str], Field(title="Criteria", description="What a critic is to look at, each in a sentence.")
    ]
    messages: Annotated[
        list[AnyMessage],
        Field(title="Messages", description="A chat instead of a task: its last human message is the task."),
        add_messages,
    ]


class Output(TypedDict, total=False):
    """What a run gives back."""

    answer: Annotated[str, Field(title="Answer", description="Of the best attempt.")]
    passed: Annotated[bool, Field(title="Passed", description="Whether an attempt reached the threshold.")]
    score: Annotated[
        float | None, Field(title="Score", description="Of the best attempt, 0 to 1; null where there was no verdict.")
    ]
    stop_reason: Annotated[StopReason | None, Field(title="Stop reason", description="Null while the run goes on.")]
    stop_detail: Annotated[str, Field(title="Why it stopped", description="In a sentence.")]
    attempts: Annotated[
        list[Attempt],
        Field(title="Attempts", description="Each with its answer, verdict, reflection and plan."),
        merge_attempts,
    ]
    plan: Annotated[str, Field(title="Plan", description="The approach that the last attempt followed.")]
    lessons_used: Annotated[
        list[RecalledLesson], Field(title="Lessons used", description="Recalled from earlier runs.")
    ]
    lessons_withheld: Annotated[
        list[RecalledLesson],
        Field(title="Lessons withheld", description="Not used, to measure what lessons do."),
    ]
    lessons_learned: Annotated[list[LearnedLesson], Field(title="Lessons learned", description="Kept for later runs.")]
    messages: Annotated[
        list[AnyMessage],
        Field(title="Messages", description="The chat, with the answer at its end where it began with a message."),
        add_messages,
    ]


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
    settings: dict[str, Any]
    spec: TaskSpec
    attempts: Annotated[list[Attempt], merge_attempts]
    own_tests: OwnTests | None
    """Tests that the model wrote itself, and what the attempts did on them; None before there are any."""
    plan: str
    lessons_used: list[RecalledLesson]
    lessons_withheld: list[RecalledLesson]
    lessons_learned: list[LearnedLesson]
    calls: Annotated[list[Call], merge_calls]
    elapsed_s: Annotated[float, add_seconds]
    review: Review | None
    failure: Failure | None
    answer: str
    score: float | None
    passed: bool
    stop_reason: StopReason | None
    stop_detail: str

    remaining_steps: RemainingSteps


def fresh() -> dict[str, Any]:
    """The values with which a run starts; an empty list would not clear a channel that merges, None does."""
    return {
        "attempts": None,
        "own_tests": None,
        "plan": "",
        "lessons_used": [],
        "lessons_withheld": [],
        "lessons_learned": [],
        "calls": None,
        "elapsed_s": None,
        "review": None,
        "failure": None,
        "answer": "",
        "score": None,
        "passed": False,
        "stop_reason": None,
        "stop_detail": "",
    }
