"""The agent as Python calls it: an open database, the compiled graph, one run at a time on a thread."""

import math
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable

from reflexion.evaluators import Evaluator
from reflexion.graphs.build import Model
from reflexion.graphs.checks import check_models, clients
from reflexion.graphs.installation import read_installation
from reflexion.graphs.recipe import Opened, Recipe
from reflexion.graphs.result import Result, result_of, result_so_far
from reflexion.graphs.reviewing import GivenDecision, Reviewer
from reflexion.graphs.run import Event, Graph, Run
from reflexion.graphs.state import Input
from reflexion.graphs.sync import run_in_background
from reflexion.memory import Persistence
from reflexion.models import Budget, ConnectionSettings, Seam, SharedBudget, prepare_tracing
from reflexion.nodes import ConfigurationError, Settings, StopReason, make_settings
from reflexion.nodes.degradation import Degradation, in_order
from reflexion.nodes.plain import plain
from reflexion.nodes.recall import read_task
from reflexion.nodes.scope import Scope

if TYPE_CHECKING:
    from reflexion.batch import Batch, Tasks


def open_reflexion(
    settings: Settings | None = None,
    *,
    model: Model | None = None,
    evaluator: Evaluator | Callable[..., Any] | None = None,
    actor: Runnable[Any, Any] | Callable[..., Any] | None = None,
    connection: ConnectionSettings | None = None,
    database_url: str | None = None,
    embeddings: Embeddings | bool | None = None,
    prompts: Path | None = None,
    degradation: Degradation = in_order,
    shared: bool = False,
) -> "Reflexion":
    """An agent, to be opened with `async with`, or used at once with `run_sync`.

    Args:
        settings: defaults for its runs; None reads `REFLEXION_*` and `.env`.
        model: see `build_graph`.
        evaluator: see `build_graph`.
        actor: see `build_graph`.
        connection: endpoint and key; None reads `REFLEXION_*` and `.env`.
        database_url: `sqlite:///…`, `postgresql://…` or `memory://`; None for `REFLEXION_DATABASE_URL`, else
            a SQLite file in the user's data folder.
        embeddings: by what lessons of similar tasks are found besides their words: embeddings of your own, True for
            the embedded ones, False for none; None for `REFLEXION_EMBEDDINGS`.
        prompts: a folder with prompt files of your own; None for `REFLEXION_PROMPTS`, else ours.
        degradation: see `build_graph`.
        shared: whether this is one of several workers, which take over from each other; see docs/workers.md.

    Raises:
        ConfigurationError: a setting in the environment cannot be used.
    """
    installation = read_installation()
    return Reflexion(
        Recipe(
            settings=settings or make_settings(),
            model=model,
            evaluator=evaluator,
            actor=actor,
            connection=connection or installation,
            database_url=database_url or installation.database_url,
            embeddings=installation.embeds if embeddings is None else embeddings,
            prompts=prompts or installation.prompts,
            degradation=degradation,
            shared=shared,
        )
    )


class Reflexion:
    """A Reflexion agent. Make one with `open_reflexion`."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._opened: Opened | None = None
        self._running: dict[str, Run] = {}
        self._draining = False

    async def __aenter__(self) -> Self:
        """Open the database and compile the graph.

        Raises:
            DatabaseError: the database cannot be opened, or not be shared by workers that are to share it.
            PromptError: the prompt files cannot be used.
        """
        self._opened = await self._recipe.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the database and the connections to models."""
        opened, self._opened = self._open, None
        await opened.stack.aclose()

    @property
    def _open(self) -> Opened:
        if self._opened is None:
            raise RuntimeError("the agent is not open: use `async with open_reflexion() as agent`, or run_sync")
        return self._opened

    @property
    def graph(self) -> Graph:
        """The compiled graph. Used directly it works without the lock that keeps runs on a thread apart.

        A run that is given no context has the agent's settings; a context takes their place as a whole.
        """
        return self._open.graph

    @property
    def persistence(self) -> Persistence:
        """The open database."""
        return self._open.persistence

    @property
    def settings(self) -> Settings:
        """The defaults of its runs."""
        return self._recipe.settings

    @property
    def uses_embedded_model(self) -> bool:
        """Whether any role is served by the embedded model."""
        kit, settings = self._open.kit, self._recipe.settings
        return any(client.embedded for client in clients(kit, settings))

    def check(self, budget: Budget | SharedBudget | None = None) -> None:
        """Refuse what no run of this agent could be made with, inside of a budget if there is one.

        Raises:
            ModelConfigurationError: a role has no usable model.
            ConfigurationError: there is a budget in USD, and a model whose price is unknown.
        """
        check_models(self._open.kit, self._recipe.settings, budget)

    async def result(self, thread: str) -> Result | None:
        """The result of the thread's last run; None where there is none, or it has not ended."""
        state = await self.graph.aget_state({"configurable": {"thread_id": thread}})
        return result_of(state.values, thread) if not state.tasks and state.values.get("stop_reason") else None  # type: ignore[arg-type]

    async def so_far(self, thread: str, reason: StopReason, detail: str) -> Result | None:
        """The best attempt of a run that was left unfinished; None before its first one.

        Args:
            thread: the run's.
            reason: what its result is to say.
            detail: the same in a sentence.
        """
        state = await self.graph.aget_state({"configurable": {"thread_id": thread}})
        return result_so_far(state.values, thread, reason, detail)  # type: ignore[arg-type]

    @property
    def seam(self) -> Seam:
        """The guards that all its calls share: limits, breaker, cache."""
        return self._open.kit.models.seam

    def shared_budget(
        self,
        name: str,
        *,
        usd: Decimal | None = None,
        tokens: int | None = None,
        requests: int | None = None,
        patient: bool = False,
        suspends: bool = False,
    ) -> SharedBudget:
        """A budget for `run` that all workers share which name it so; in Redis if there is one, else in PostgreSQL.

        Raises:
            ConfigurationError: nothing is shared.
        """
        store = self._open.kit.models.seam.budgets
        if store is None:
            raise ConfigurationError("a shared budget needs REFLEXION_REDIS_URL, or PostgreSQL and shared=True")
        return SharedBudget(name, store, usd=usd, tokens=tokens, requests=requests, patient=patient, suspends=suspends)

    async def run(
        self,
        task: str | None = None,
        *,
        tests: str = "",
        expect: Any = None,
        criteria: Sequence[str] = (),
        thread: str | None = None,
        wait_s: float = 0.0,
        decision: GivenDecision | None = None,
        reviewer: Reviewer | None = None,
        budget: Budget | SharedBudget | None = None,
        batch: str = "",
        priority: int = 0,
        **settings: Any,
    ) -> Result:
        """Work on a task until an attempt passes or a guard ends the run.

        A run that was broken off on the same thread goes on where it was, when it is given the same task
        again or none: nothing that was finished is paid for twice.

        Args:
            task: what is asked for; None to go on with what the thread has left unfinished.
            tests: Python tests that a right answer passes.
            expect: the expected answer; see `read_expectation` for its forms.
            criteria: what a critic is to look at, each in a sentence.
            thread: name of the thread, whose reflections are kept; None for a new one.
            wait_s: how long to wait for a thread on which another run works, in seconds.
            decision: on the review that the thread waits for; the task need not be given again.
            reviewer: is asked where the setting `review` wants a decision; see `Reviewer`.
            budget: one that several runs share; the run's own, from its settings, is inside of it.
            batch: what the ledger is to sum the run under besides itself and its thread.
            priority: where requests queue, higher goes first.
            **settings: fields of `Settings` for this run alone.

        Raises:
            ConfigurationError: the task or a setting cannot be used.
            ModelConfigurationError: a role has no usable model.
            ThreadBusy: another run holds the thread.
            ReviewPending: a decision is needed and there is no reviewer; the run goes on when it is given.
            Fenced: another worker has taken the thread over meanwhile.
            Suspended: the given budget has refused a call, and is one that leaves runs as they are then.
        """
        events = self._events(
            task,
            tests=tests,
            expect=expect,
            criteria=criteria,
            thread=thread,
            wait_s=wait_s,
            decision=decision,
            reviewer=reviewer,
            scope=Scope(budget=budget, batch_id=batch, priority=priority),
            **settings,
        )
        async with aclosing(events):
            async for event in events:
                if event["event"] == "result":
                    result: Result = event["result"]
                    return result
        raise AssertionError("a run ends with its result")

    def stream(
        self,
        task: str | None = None,
        *,
        tests: str = "",
        expect: Any = None,
        criteria: Sequence[str] = (),
        thread: str | None = None,
        wait_s: float = 0.0,
        decision: GivenDecision | None = None,
        reviewer: Reviewer | None = None,
        budget: Budget | SharedBudget | None = None,
        batch: str = "",
        priority: int = 0,
        **settings: Any,
    ) -> AsyncGenerator[Event, None]:
        """As `run`, but yields what happens as it happens; the last event is `result`."""
        return self._events(
            task,
            tests=tests,
            expect=expect,
            criteria=criteria,
            thread=thread,
            wait_s=wait_s,
            decision=decision,
            reviewer=reviewer,
            scope=Scope(budget=budget, batch_id=batch, priority=priority),
            **({"stream": True} | settings),
        )

    def run_sync(self, task: str | None = None, **arguments: Any) -> Result:
        """`run` for code that is not async; works inside a running event loop as well (notebooks).

        It runs in a background thread that all such calls of the process share, on a connection of its own.
        """

        async def run() -> Result:
            async with Reflexion(self._recipe) as agent:
                return await agent.run(task, **arguments)

        return run_in_background(run)

    def run_batch(self, tasks: "Tasks", **options: Any) -> "Batch":
        """Many tasks; iterate over it for their records as they finish. `reflexion.batch.run_batch` has the options.

        Raises:
            BatchError: they cannot be used.
        """
        from reflexion.batch import run_batch  # noqa: PLC0415 - who runs one task has no need of it

        return run_batch(tasks, self, **options)

    async def cancel(self, thread: str) -> bool:
        """End the run on a thread with its best attempt and the stop reason `cancelled`.

        Lessons that it has come to are stored, and the result is what `run` returns. To break a run off so
        that it can be resumed, cancel the task that awaits it instead.

        Returns:
            Whether a run of this agent was there to be cancelled.
        """
        run = self._running.get(thread)
        if run is None:
            return False
        run.cancel()
        return True

    def drain(self) -> None:
        """Let every run stop when its step is done, with `Drained`: another worker goes on. It begins no other run."""
        self._draining = True
        for run in self._running.values():
            run.drain()

    async def _events(
        self,
        task: str | None,
        *,
        tests: str,
        expect: Any,
        criteria: Sequence[str],
        thread: str | None,
        wait_s: float,
        decision: Any,
        reviewer: Reviewer | None,
        scope: Scope,
        **changes: Any,
    ) -> AsyncGenerator[Event, None]:
        opened = self._open
        settings = make_settings(self._recipe.settings, **changes)
        check_models(opened.kit, settings, scope.budget)
        given: Input | None = None
        if task is not None:
            listed: Any = [criteria] if isinstance(criteria, str) else criteria
            given = plain(Input(task=task, tests=tests, expect=expect, criteria=listed))
            read_task(given)  # type: ignore[arg-type]  # fails here, before anything is locked or paid for
        if thread is not None and not (isinstance(thread, str) and thread):
            raise ConfigurationError(f"thread {thread!r} is no name: give a text, or None for a new thread")
        if decision is not None and thread is None:
            raise ConfigurationError("a decision needs the thread that waits for it: thread=…")
        if not 0 <= wait_s < math.inf:
            raise ConfigurationError(f"wait {wait_s!r} is no time: give seconds, 0 or more")
        thread_id = thread or str(uuid.uuid4())
        prepare_tracing(opened.kit.models.connection)
        persistence = opened.persistence
        hold = persistence.fenced if self._recipe.shared else persistence.locks.hold
        async with hold(thread_id, wait_s=wait_s) as fence:
            run = Run(opened.graph, thread_id, settings, replace(scope, store=persistence.ledger, fence=fence))
            self._running[thread_id] = run
            if self._draining:
                run.drain()
            try:
                async with aclosing(run.events(given, decision=decision, reviewer=reviewer)) as events:
                    async for event in events:
                        yield event
            finally:
                del self._running[thread_id]
