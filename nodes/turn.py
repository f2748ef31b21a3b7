"""What surrounds every node: its tools, its share of the limits, its events, and what happens when it fails."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from langchain_core.runnables import Runnable
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from reflexion.evaluators import Evaluator
from reflexion.models import (
    BudgetExhausted,
    Call,
    ChatClient,
    DeadlineExceeded,
    Meter,
    ModelError,
    Models,
    Role,
    Usage,
)
from reflexion.nodes.settings import Settings
from reflexion.prompts import Prompt, PromptBook

Delta = dict[str, Any]
"""What a node changes in the state."""

StopReason = Literal[
    "passed",
    "max_attempts",
    "plateau",
    "budget",
    "deadline",
    "evaluator_failed",
    "model_error",
    "refused",
    "cancelled",
]


class Failure(TypedDict):
    """Why a node could not do its work; the run then ends with what it has."""

    reason: StopReason
    kind: str
    """The `ModelError`'s kind where it was one, else the same as `reason`."""
    node: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What the nodes of one graph work with, the same for every run."""

    models: Models
    prompts: PromptBook
    evaluator: Evaluator | None = None
    """The caller's own; None to choose by the task."""
    actor: Runnable[Any, Any] | None = None
    """The caller's own; None for a chat model with our prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one node works with in one step."""

    kit: Kit
    settings: Settings
    meter: Meter
    emit: Callable[..., None]
    """`emit(event, **fields)` sends a custom stream event."""
    store: BaseStore | None
    thread_id: str
    step_id: str
    """The same over retries and after a crash, new where a checkpoint is replayed on purpose."""

    def client(self, role: Role) -> ChatClient:
        """The role's model."""
        return self.kit.models.client(role, self.settings.model_for(role))

    def prompt(self, role: str) -> Prompt:
        """The role's prompt in the run's language."""
        return self.kit.prompts.get(role, self.settings.lang)


Node = Callable[[Any, Turn], Awaitable[Delta]]

_ALWAYS = {"recall", "remember"}
"""The first node clears an old run's failure, the last one reports this run's."""


def as_graph_node(name: str, node: Node, kit: Kit) -> Callable[..., Awaitable[Delta]]:
    """The node as LangGraph calls it.

    Adds to its delta the ledger lines and the time it took. Where its model cannot be had, the money or
    the time is used up, it leaves a `failure` instead of an exception; the nodes after it then do nothing,
    so that the edge after the evaluator is the only place where a run ends.
    """

    async def run(state: dict[str, Any], runtime: Runtime[Settings]) -> Delta:
        if state.get("failure") and name not in _ALWAYS:
            return {}
        started = time.monotonic()
        turn = _turn(name, state, runtime, kit)
        try:
            delta = await node(state, turn)
        except BudgetExhausted as error:
            delta = {"failure": Failure(reason="budget", kind="budget", node=name, message=str(error))}
        except DeadlineExceeded as error:
            delta = {"failure": Failure(reason="deadline", kind="deadline", node=name, message=str(error))}
        except ModelError as error:
            refused = error.kind in {"refused", "content_filter"}
            reason: StopReason = "refused" if refused else "model_error"
            delta = {"failure": Failure(reason=reason, kind=error.kind, node=name, message=str(error))}
        calls = turn.meter.calls
        if calls:
            usage = Usage.of([*_calls(state), *calls])
            cost = None if usage.cost_usd is None else str(usage.cost_usd)
            turn.emit("usage", requests=usage.requests, tokens=usage.tokens, cost_usd=cost)
        delta.setdefault("calls", calls)
        delta.setdefault("elapsed_s", time.monotonic() - started)
        return delta

    run.__name__ = name
    return run


def _turn(name: str, state: dict[str, Any], runtime: Runtime[Settings], kit: Kit) -> Turn:
    settings = runtime.context or Settings()
    first = name == "recall"
    used_s = 0.0 if first else state.get("elapsed_s", 0.0)
    deadline = None if settings.deadline_s is None else time.monotonic() + settings.deadline_s - used_s
    attempts = [] if first else state.get("attempts", [])
    info = runtime.execution_info

    def emit(event: str, **fields: Any) -> None:
        runtime.stream_writer({"event": event, **fields})

    return Turn(
        kit=kit,
        settings=settings,
        meter=Meter(
            role=name,
            attempt=len(attempts) + (name == "actor"),
            spent=Usage.of([] if first else _calls(state)),
            budget_usd=settings.budget_usd,
            budget_tokens=settings.budget_tokens,
            deadline=deadline,
        ),
        emit=emit,
        store=runtime.store,
        thread_id=(info.thread_id if info else None) or "",
        step_id=info.task_id if info else "",
    )


def _calls(state: dict[str, Any]) -> list[Call]:
    calls: list[Call] = state.get("calls", [])
    return calls
