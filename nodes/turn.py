"""What surrounds every node: its tools, its share of the limits, its events, and what happens when it fails."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from typing_extensions import TypedDict

from reflexion.evaluators import Evaluator
from reflexion.models import (
    Budget,
    BudgetExhausted,
    Call,
    ChatClient,
    CircuitState,
    Completer,
    DeadlineExceeded,
    Fallback,
    Fenced,
    Ledger,
    Meter,
    ModelConfigurationError,
    ModelError,
    Models,
    Role,
    SharedBudget,
    Suspended,
    Usage,
    as_call,
    circuit_listener,
    scrub,
)
from reflexion.models.kept import KeptReplies
from reflexion.nodes import cancellation, scope
from reflexion.nodes.cancellation import Cancelled
from reflexion.nodes.degradation import Degradation, Measures, in_order, share_left
from reflexion.nodes.plain import plain
from reflexion.nodes.settings import ConfigurationError, Settings, settings_of
from reflexion.nodes.thread_budget import thread_budget
from reflexion.nodes.tracing import trace_step
from reflexion.prompts import Prompt, PromptBook

T = TypeVar("T")

logger = logging.getLogger(__name__)

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


REFUSALS = frozenset({"refused", "content_filter"})
"""Kinds of `ModelError` by which a model, or its endpoint, would not answer."""


class Failure(TypedDict):
    """Why a node could not do its work; the run then ends with what it has."""

    reason: StopReason
    kind: str
    """The `ModelError`'s kind where it was one, `unexpected` for any other exception, else the same as `reason`."""
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
    degradation: Degradation = in_order
    """What is given up as a run's budget runs short."""
    settings: Settings
    """Of runs that are given none."""
    store: BaseStore | None = None
    """The agent's own, so that it stays that inside a graph with another store; None for the graph's."""


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
    measures: Measures
    """What the run has to give up by now."""
    prompts: PromptBook
    """The kit's, with the run's own system texts."""

    def client(self, role: Role) -> Completer:
        """The role's model, with those behind it that are asked where it cannot answer."""
        settings = self.settings
        own = settings.model_for(role)
        saving = [settings.cheaper_model] if settings.cheaper_model and self.measures.cheaper_model else []
        # Distinct clients, not names: a model of the caller's own serves its role under every name.
        clients = list(
            dict.fromkeys(self.kit.models.client(role, name) for name in (*saving, own, *settings.fallback_models))
        )
        return clients[0] if len(clients) == 1 else Fallback(clients, partial(self._switched, role))

    def _switched(self, role: Role, before: ChatClient, after: ChatClient, error: ModelError) -> None:
        self.emit("fell_back", role=role, model=before.name, to=after.name, reason=error.kind, detail=str(error))

    def prompt(self, role: str) -> Prompt:
        """The role's prompt in the run's language."""
        return self.prompts.get(role, self.settings.lang)

    async def within_deadline(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await code of the caller's, which knows nothing of the run's limits.

        Raises:
            DeadlineExceeded: the run's time is used up.
        """
        limit = asyncio.timeout(self.meter.left_s())
        try:
            async with limit:
                return await work()
        except TimeoutError:
            if limit.expired():
                raise DeadlineExceeded("the run's time is used up") from None
            raise


Node = Callable[[Any, Turn], Awaitable[Delta]]

_ALWAYS = {"recall", "remember"}
"""The first node clears an old run's failure, the last one reports this run's: neither is ever left out."""

_LEFT_TO_THE_CALLER = (GraphBubbleUp, ConfigurationError, ModelConfigurationError, Fenced, Suspended)
"""An interrupt is no failure, settings that cannot be used are for the caller to mend, a run that was taken over is
another's, and what is around a run may have more for it later; it can be resumed."""


def as_graph_node(name: str, node: Node, kit: Kit) -> Callable[..., Awaitable[Delta]]:
    """The node as LangGraph calls it.

    Adds to its delta the ledger lines and the time it took. Whatever goes wrong in it, it leaves a `failure`
    instead of an exception, which would take the attempts so far with it; the nodes after it then do nothing,
    so that the edge after the evaluator is the only place where a run ends.
    """

    async def run(state: dict[str, Any], runtime: Runtime[Settings]) -> Delta:
        if state.get("failure") and name not in _ALWAYS:
            return {}
        started = time.monotonic()
        turn = await _turn(name, state, runtime, kit)
        if name in _ALWAYS:
            delta = await node(state, turn)
        else:
            delta = await _guarded(name, partial(node, state, turn))
        calls = [*turn.meter.calls, *(_recovered(state) if name != "recall" else ())]
        if calls:
            usage = Usage.of([*_calls(state), *calls])
            turn.emit(
                "usage",
                requests=usage.requests,
                tokens=usage.tokens,
                cost_usd=usage.as_json()["cost_usd"],
                left=_left(turn.meter),
            )
        delta.setdefault("calls", calls)
        delta.setdefault("elapsed_s", time.monotonic() - started)
        cleaned: Delta = plain(delta)
        trace_step(name, state, cleaned, turn.settings.threshold, turn.meter)
        return cleaned

    run.__name__ = name
    return run


async def _guarded(name: str, work: Callable[[], Awaitable[Delta]]) -> Delta:
    cancel = cancellation.current.get()
    try:
        with cancel.around_step() if cancel else nullcontext():
            return await work()
    except _LEFT_TO_THE_CALLER:
        raise
    except Exception as error:
        if is_invalid_resume(error):  # nothing is saved, so that the interrupt can be answered again
            raise
        reason, kind = _meaning(error)
        if kind == "unexpected":
            logger.exception("the %s failed", name)
        message = str(error) if kind != "unexpected" else f"{type(error).__name__}: {scrub(str(error))}"
        return {"failure": Failure(reason=reason, kind=kind, node=name, message=message)}


def _meaning(error: Exception) -> tuple[StopReason, str]:
    match error:
        case BudgetExhausted():
            return "budget", "budget"
        case DeadlineExceeded():
            return "deadline", "deadline"
        case Cancelled():
            return "cancelled", "cancelled"
        case ModelError():
            return "refused" if error.kind in REFUSALS else "model_error", error.kind
    return "model_error", "unexpected"


async def _turn(name: str, state: dict[str, Any], runtime: Runtime[Settings], kit: Kit) -> Turn:
    first = name == "recall"
    settings = settings_of(runtime.context, kit.settings, {} if first else state.get("settings", {}))
    used_s = 0.0 if first else state.get("elapsed_s", 0.0)
    deadline = None if settings.deadline_s is None else time.monotonic() + settings.deadline_s - used_s
    attempts = [] if first else state.get("attempts", [])
    info = runtime.execution_info
    around = scope.current.get()
    spent = Usage.of([] if first else [*_calls(state), *_recovered(state)])
    thread_id = (info.thread_id if info else None) or ""

    def emit(event: str, **fields: Any) -> None:
        runtime.stream_writer({"event": event, **fields})

    attempt = len(attempts) + (name == "actor")

    def token(text: str) -> None:
        emit("token", role=name, attempt=attempt, text=text)

    def circuit_changed(before: str, circuit: CircuitState) -> None:
        emit(
            "circuit",
            model=circuit.model,
            endpoint=circuit.endpoint,
            before=before,
            state=circuit.state,
            why=circuit.why,
        )

    circuit_listener.set(circuit_changed)
    store = scope.ledger_store()
    step_id = info.task_id if info else ""
    outer = await thread_budget(settings, thread_id, store, around.budget)
    return Turn(
        kit=kit,
        settings=settings,
        meter=Meter(
            role=name,
            attempt=attempt,
            run_id=state.get("run_id", ""),
            thread_id=thread_id,
            batch_id=around.batch_id,
            priority=around.priority,
            budget=_budget(settings, spent, outer),
            ledger=Ledger(store),
            # Whoever calls the graph itself does not tell when a run has ended, and would keep them for ever.
            replies=KeptReplies.of(step_id, around.replies) if around.store and step_id else None,
            deadline=deadline,
            clock=time.monotonic,
            on_token=token if settings.stream else None,
        ),
        emit=emit,
        store=runtime.store if kit.store is None else kit.store,
        thread_id=thread_id,
        step_id=step_id,
        measures=kit.degradation(share_left(spent, settings)),
        prompts=kit.prompts.instructed(settings.own_prompts()),
    )


def _left(meter: Meter) -> dict[str, str | int | float]:
    """What the run may still use, by unit; empty where nothing is limited."""
    left = meter.budget.left() if meter.budget else {}
    if meter.deadline is not None:
        seconds = max(0.0, meter.deadline - meter.clock())
        left["seconds"] = min(seconds, float(left.get("seconds", seconds)))
    return left


def _budget(settings: Settings, spent: Usage, around: Budget | SharedBudget | None) -> Budget | None:
    """The run's budget inside those around it; None where nothing is limited."""
    caps = (settings.budget_usd, settings.budget_tokens, settings.budget_requests)
    if around is None and all(cap is None for cap in caps):
        return None
    usd, tokens, requests = caps
    return Budget("run", usd=usd, tokens=tokens, requests=requests, parent=around, spent=spent)


def _recovered(state: dict[str, Any]) -> list[Call]:
    """What the ledger holds of the run and its state does not: requests that were in flight in a crash."""
    known = {call["id"] for call in _calls(state)}
    lines = [line for line in scope.current.get().recovered if line["run_id"] == state.get("run_id")]
    return [as_call(line) for line in lines if line["id"] not in known]


def _calls(state: dict[str, Any]) -> list[Call]:
    calls: list[Call] = state.get("calls", [])
    return calls
