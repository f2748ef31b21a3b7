"""One run on a thread that is held: started or resumed, watched, cancelled, and always brought to its result."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphDrained
from langgraph.graph import START
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from reflexion.graphs.result import result_of
from reflexion.graphs.reviewing import Reviewer, ReviewPending, decide, pending_request, resume_with
from reflexion.graphs.state import Input, Output, State
from reflexion.models import Budget, fence
from reflexion.nodes import ConfigurationError, ReviewRequest, Settings, cancellation
from reflexion.nodes.cancellation import Cancellation
from reflexion.nodes.recall import TaskSpec, read_task
from reflexion.nodes.scope import Scope
from reflexion.nodes.scope import current as current_scope

Graph = CompiledStateGraph[State, Settings, Input, Output]
EVENTS = frozenset(
    {
        "attempt_started",
        "attempted",
        "circuit",
        "fell_back",
        "planned",
        "recalled",
        "withheld",
        "reflected",
        "reviewed",
        "scored",
        "stopped",
        "token",
        "usage",
    }
)
"""What our nodes send. Whatever else comes through the stream is the caller's own actor's or evaluator's."""

Event = dict[str, Any]
"""A custom stream event; `event` says which, docs/events.md has their fields."""


class Drained(Exception):  # noqa: N818 - an end, not an error
    """The run stopped between two steps, as `Reflexion.drain` asked for; whoever runs the thread next goes on."""


class Run:
    """One run on a thread that is held."""

    def __init__(self, graph: Graph, thread_id: str, settings: Settings, scope: Scope) -> None:
        self._graph = graph
        self._scope = scope
        self._thread_id = thread_id
        self._settings = settings
        self._config = RunnableConfig(
            configurable={"thread_id": thread_id},
            run_name="reflexion",
            # Inside a node or tool of another graph, its stream of messages is not to show what our roles write.
            tags=[TAG_NOSTREAM],
            metadata={"threshold": settings.threshold},
        )
        self._cancellation = Cancellation()
        self._control = RunControl()

    def drain(self) -> None:
        """Stop once the step that is at work is done and checkpointed."""
        self._control.request_drain()

    def cancel(self) -> None:
        """End the run with the best attempt so far."""
        self._cancellation.wish()

    async def events(
        self, given: Input | None, *, decision: Any = None, reviewer: Reviewer | None = None
    ) -> AsyncGenerator[Event, None]:
        """The run's events, and at last its result.

        Args:
            given: the task; None to go on with an unfinished one.
            decision: on the review that the thread waits for.
            reviewer: is asked for decisions; without one a review ends the work, to be resumed with a decision.

        Raises:
            ConfigurationError: there is no task, neither given nor unfinished; or a decision cannot be used, or is
                given with another task than the one that waits for it.
            ReviewPending: a decision is needed, and there is nobody to ask.
            Fenced: another worker has taken the thread over.
            Drained: it was asked to stop.
        """
        before = await self._graph.aget_state(self._config)
        resumed = self._goes_on(given, before)
        start: Input | Command[Any] | None = None if resumed else given
        if decision is not None:
            start = resume_with(decision, before, self._thread_id)
            if not resumed:
                raise ConfigurationError(f"thread {self._thread_id!r} waits for a review of another task: give none")
        scope = await self._with_history(before.values.get("run_id"), resumed)
        yield {"event": "started", "thread_id": self._thread_id, "resumed": resumed}
        while True:
            async with aclosing(self._until_it_stops(start, scope)) as events:
                async for event in events:
                    yield event
            after = await self._graph.aget_state(self._config)
            request = pending_request(after, self._thread_id)
            if request is None:
                break
            yield {"event": "review", **request}
            if reviewer is None:
                raise ReviewPending(request, self._thread_id)
            start = resume_with(await self._asked(reviewer, request), after, self._thread_id)
        if self._scope.fence:
            await self._scope.fence.check()
        if self._scope.store:
            await self._scope.store.forget(after.values["run_id"])
        yield {"event": "result", "result": result_of(after.values, self._thread_id)}  # type: ignore[arg-type]

    async def _until_it_stops(self, start: Input | Command[Any] | None, scope: Scope) -> AsyncGenerator[Event, None]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        work = asyncio.create_task(self._drive(start, queue, scope))
        # A task that is cancelled before its first step runs no line of its own, not even a `finally`.
        work.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await work
        finally:
            broken_off = not work.done()
            work.cancel()
            (end,) = await asyncio.gather(work, return_exceptions=True)
            if broken_off or end is not None:
                # LangGraph goes on to write that down. The saver works in turn: this read waits for it, so that nothing
                # is written any more once the thread is free.
                await self._graph.aget_state(self._config)

    async def _asked(self, reviewer: Reviewer, request: ReviewRequest) -> Any:
        """The reviewer's decision; to end the run where the caller cancels it meanwhile."""
        asking = asyncio.ensure_future(decide(reviewer, request))
        cancelled = asyncio.create_task(self._cancellation.wished())
        try:
            await asyncio.wait([asking, cancelled], return_when=asyncio.FIRST_COMPLETED)
            return {"action": "stop"} if cancelled.done() else asking.result()
        finally:
            for task in (asking, cancelled):
                task.cancel()
            await asyncio.gather(asking, cancelled, return_exceptions=True)

    def _goes_on(self, given: Input | None, before: StateSnapshot) -> bool:
        """Whether this goes on with what the thread has left unfinished."""
        # Not `next`, which leaves out what has ended in the step that was broken off.
        unfinished = bool(before.tasks)
        if given is None and not unfinished:
            raise ConfigurationError(f"thread {self._thread_id!r} has nothing unfinished to go on with: give a task")
        return unfinished and (given is None or _unfinished_task(before) == read_task(given))  # type: ignore[arg-type]

    async def _with_history(self, last_run: str | None, resumed: bool) -> Scope:
        """The scope with what the ledger holds of a run that is resumed.

        Args:
            last_run: the thread's last run, which is the one that is resumed unless it had ended.
            resumed: whether one is resumed.
        """
        store = self._scope.store
        if store is None or not last_run:
            return self._scope
        # Nobody else can be at work on it: its thread is held.
        await store.lose(last_run)
        if not resumed:
            await store.forget(last_run)
            return self._scope
        lines, replies = await store.lines(run_id=last_run), await store.replies(last_run)
        around = self._scope.budget
        if shared := around.shared if isinstance(around, Budget) else around:
            await shared.recover(lines)
        return replace(self._scope, recovered=lines, replies=replies)

    async def _drive(
        self, given: Input | Command[Any] | None, queue: asyncio.Queue[Event | None], scope: Scope
    ) -> None:
        cancellation.current.set(self._cancellation)
        current_scope.set(scope)
        fence.current.set(scope.fence)
        how: dict[str, Any] = {"stream_mode": "custom", "durability": "sync", "control": self._control}
        try:
            async for event in self._graph.astream(given, self._config, context=self._settings, **how):
                ours = isinstance(event, dict) and event.get("event") in EVENTS
                queue.put_nowait(event if ours else {"event": "custom", "data": event})
        except GraphDrained:
            raise Drained(f"thread {self._thread_id!r} was left between two steps, as this process is to end") from None


def _unfinished_task(left: StateSnapshot) -> TaskSpec | None:
    """The task of a run that was broken off; before its first step was done there is only the input."""
    if START in [task.name for task in left.tasks]:
        return None  # not even that can be read yet
    if "recall" not in left.next:
        return left.values["spec"]  # type: ignore[no-any-return]
    try:
        return read_task(left.values)  # type: ignore[arg-type]
    except ConfigurationError:
        return None  # what could not be begun is nothing to go on with
