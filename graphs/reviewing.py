"""Reviews as Python sees them: what a run waits for, and how a decision gets to it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langgraph.types import Command, StateSnapshot
from pydantic import ValidationError

from reflexion.nodes import ConfigurationError, Decision, ReviewRequest, explain, read_decision

GivenDecision = Decision | Mapping[str, Any] | str
"""A decision as callers give it; see `reflexion.nodes.review` for its fields."""

Reviewer = Callable[[ReviewRequest], GivenDecision | Awaitable[GivenDecision]]
"""Is shown what there is to decide on, and returns the decision: a dict, or the word `approve` or `stop`."""


class ReviewPending(Exception):  # noqa: N818 - the run waits; nothing is wrong
    """The run waits for a decision: `agent.run(thread=…, decision=…)` goes on with it, now or in days."""

    def __init__(self, request: ReviewRequest, thread_id: str) -> None:
        what = "is to be accepted" if request["about"] == "answer" else "has failed, and another one is to be made"
        super().__init__(
            f"thread {thread_id!r} waits for a review: attempt {request['attempt']} {what}; go on with "
            f"agent.run(thread={thread_id!r}, decision='approve')"
        )
        self.request = request
        self.thread_id = thread_id


async def decide(reviewer: Reviewer, request: ReviewRequest) -> Any:
    """Ask a reviewer, who may be async."""
    decision = reviewer(request)
    return await decision if inspect.isawaitable(decision) else decision


def pending_request(snapshot: StateSnapshot, thread_id: str) -> ReviewRequest | None:
    """What a thread waits to have decided; None where it does not wait.

    Raises:
        RuntimeError: it waits for something else.
    """
    waiting = [(task.name, interrupt) for task in snapshot.tasks for interrupt in task.interrupts]
    if not waiting:
        return None
    (name, interrupt), *_ = waiting
    if name != "review":
        raise RuntimeError(
            f"thread {thread_id!r} waits for an answer to an interrupt of the caller's own actor or "
            "evaluator: give it with `agent.graph.ainvoke(Command(resume=…), …)`"
        )
    request: ReviewRequest = interrupt.value
    return request


def resume_with(decision: Any, snapshot: StateSnapshot, thread_id: str) -> Command[Any]:
    """The decision as LangGraph takes it.

    Raises:
        ConfigurationError: nothing waits for a decision, or this one fits nothing that is asked.
    """
    request = pending_request(snapshot, thread_id)
    if request is None:
        raise ConfigurationError(f"thread {thread_id!r} waits for no review: call run without a decision")
    try:
        read = read_decision(request["about"], decision)
    except ValidationError as error:
        raise ConfigurationError(f"decision on attempt {request['attempt']}: {explain(error)}") from error
    return Command(resume=read.model_dump(exclude_none=True))
