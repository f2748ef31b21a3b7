"""Puts the nodes together."""

import sys
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime, get_runtime

from reflexion.evaluators import Evaluator, as_evaluator
from reflexion.graphs import routing
from reflexion.graphs.state import Input, Output, State, fresh
from reflexion.models import ConnectionSettings, Models, Role, prepare_tracing
from reflexion.nodes import (
    Kit,
    Settings,
    actor,
    as_graph_node,
    evaluator,
    planner,
    recall,
    reflector,
    remember,
    review,
)
from reflexion.nodes.degradation import Degradation, in_order
from reflexion.nodes.settings import make_settings, settings_of
from reflexion.prompts import PromptBook

Model = BaseChatModel | Mapping[Role, BaseChatModel]
"""A chat model for all roles, or one per role."""


def build_graph(
    *,
    model: Model | None = None,
    evaluator: Evaluator | Callable[..., Any] | None = None,
    actor: Runnable[Any, Any] | Callable[..., Any] | None = None,
    connection: ConnectionSettings | None = None,
    prompts: Path | None = None,
    settings: Settings | None = None,
    degradation: Degradation = in_order,
) -> StateGraph[State, Settings, Input, Output]:
    """The graph, not yet compiled: give it a checkpointer and a store of your own.

    Args:
        model: chat models of your own, for all roles or per role; None for the configured endpoint.
        evaluator: how attempts are scored: an evaluator or a function; None to choose by the task.
        actor: what makes the attempts: a runnable, a function or another graph. It gets a dict with
            `messages` (the prompt), `task`, `plan`, `rules`, `checks` and `attempt`, and returns a text, a
            message, or a dict with `answer` or `messages`. None for a chat model.
        connection: endpoint and key; None reads the environment.
        prompts: a folder with prompt files of your own.
        settings: of runs that are given no context; None reads the environment.
        degradation: what is given up as the run's budget runs short.

    Raises:
        PromptError: the prompt files cannot be used.
        TypeError: the evaluator is none.
    """
    return assemble(make_kit(model, evaluator, actor, connection, prompts, settings, degradation))


def make_kit(
    model: Model | None,
    judge: Evaluator | Callable[..., Any] | None,
    own_actor: Runnable[Any, Any] | Callable[..., Any] | None,
    connection: ConnectionSettings | None,
    prompts: Path | None,
    settings: Settings | None,
    degradation: Degradation = in_order,
    shared_database: str | None = None,
) -> Kit:
    """What the nodes work with; see `build_graph` and `Models`."""
    if own_actor is not None and not isinstance(own_actor, Runnable):
        own_actor = RunnableLambda(own_actor)
    settings = settings or make_settings()
    models = Models(connection, own=model, shared_database=shared_database)
    prepare_tracing(models.connection)
    return Kit(
        models=models,
        prompts=PromptBook.load(prompts),
        evaluator=None if judge is None else as_evaluator(judge),
        actor=own_actor,
        settings=settings,
        degradation=degradation,
    )


_LABELS = {"actor": "attempt", "reflector": "again", "review": "review", "remember": "done"}
"""What pictures write at an edge that is one of several, by where it leads."""


def _labelled(*steps: str) -> dict[Hashable, str]:
    return {_LABELS[step]: step for step in steps}


def assemble(kit: Kit) -> StateGraph[State, Settings, Input, Output]:
    """The graph over a kit."""
    graph: StateGraph[State, Settings, Input, Output] = StateGraph(
        State, context_schema=Settings, input_schema=Input, output_schema=Output
    )
    steps: dict[str, Any] = {
        "recall": partial(recall, fresh=fresh),
        "actor": actor,
        "evaluator": evaluator,
        "reflector": reflector,
        "planner": planner,
        "review": review,
        "remember": partial(remember, stop=partial(routing.stop, degradation=kit.degradation)),
    }

    def at_hand(state: State) -> tuple[State, Settings]:
        """What an edge looks at: there is no run, and nothing to count, where a checkpoint is edited by hand."""
        runtime: Runtime[Settings] | None = get_runtime(Settings)
        if runtime is None:
            state = {**state, "remaining_steps": sys.maxsize}
        return state, settings_of(runtime and runtime.context, kit.settings, state.get("settings", {}))

    # A trace shows these names.
    def after_evaluator(state: State) -> str:
        return _LABELS[routing.after_evaluator(*at_hand(state), kit.degradation)]

    def after_planner(state: State) -> str:
        return _LABELS[routing.after_planner(*at_hand(state))]

    def after_review(state: State) -> str:
        return _LABELS[routing.after_review(*at_hand(state), kit.degradation)]

    for name, step in steps.items():
        graph.add_node(name, as_graph_node(name, step, kit))
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "actor")
    graph.add_edge("actor", "evaluator")
    graph.add_conditional_edges("evaluator", after_evaluator, _labelled("reflector", "review", "remember"))
    graph.add_edge("reflector", "planner")
    graph.add_conditional_edges("planner", after_planner, _labelled("actor", "review"))
    graph.add_conditional_edges("review", after_review, _labelled("actor", "reflector", "remember"))
    graph.add_edge("remember", END)
    return graph
