"""One run on a thread that is held: started or resumed, watched, cancelled, and always brought to its result."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph

from reflexion.graphs.result import result_of
from reflexion.graphs.routing import recursion_limit
from reflexion.graphs.state import Input, Output, State, fresh
from reflexion.nodes import ConfigurationError, Failure, Settings
from reflexion.nodes.recall import TaskSpec, read_task

Graph = CompiledStateGraph[State, Settings, Input, Output]
Event = dict[str, Any]
"""A custom stream event; `event` says which, docs/events.md has their fields."""


class Run:
    """One run on a thread that is held."""

    def __init__(self, graph: Graph, thread_id: str, settings: Settings) -> None:
        self._graph = graph
        self._thread_id = thread_id
        self._settings = settings
        self._config = RunnableConfig(
            configurable={"thread_id": thread_id},
            recursion_limit=recursion_limit(settings.max_attempts),
            run_name="reflexion",
            metadata={"threshold": settings.threshold},
        )
        self._work: asyncio.Task[None] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """End the run; its best attempt so far is the result."""
        self._cancelled = True
        if self._work is not None:
            self._work.cancel()

    async def events(self, given: Input | None) -> AsyncGenerator[Event, None]:
        """The run's events, and at last its result.

        Args:
            given: the task; None to go on with an unfinished one.

        Raises:
            ConfigurationError: there is no task, neither given nor unfinished.
        """
        before = await self._graph.aget_state(self._config)
        resumed, spec = self._which_task(given, before.values, unfinished=bool(before.next))
        yield {"event": "started", "thread_id": self._thread_id, "resumed": resumed}
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._work = asyncio.create_task(self._drive(None if resumed else given, queue))
        if self._cancelled:
            self._work.cancel()
        try:
            while (event := await queue.get()) is not None:
                yield event
            if self._cancelled:
                await asyncio.wait([self._work])
                await self._wind_up(spec, last_run=before.values.get("run_id"), resumed=resumed)
            else:
                await self._work
        finally:
            self._work.cancel()
            await asyncio.wait([self._work])
        after = await self._graph.aget_state(self._config)
        yield {"event": "result", "result": result_of(after.values, self._thread_id)}  # type: ignore[arg-type]

    def _which_task(self, given: Input | None, values: Mapping[str, Any], *, unfinished: bool) -> tuple[bool, TaskSpec]:
        """Whether this goes on with what the thread has left unfinished, and the task."""
        left: TaskSpec | None = None
        if unfinished:
            # A run that was broken off before its first step was done still has its input, and no spec.
            left = read_task(values) if values.get("task") else values["spec"]  # type: ignore[arg-type]
        if given is not None:
            spec = read_task(given)  # type: ignore[arg-type]
            return left == spec, spec
        if left is None:
            raise ConfigurationError(f"thread {self._thread_id!r} has nothing unfinished to go on with: give a task")
        return True, left

    async def _drive(self, given: Input | None, queue: asyncio.Queue[Event | None]) -> None:
        try:
            async for event in self._graph.astream(
                given, self._config, context=self._settings, stream_mode="custom", durability="sync"
            ):
                queue.put_nowait(event)
        finally:
            queue.put_nowait(None)

    async def _wind_up(self, spec: TaskSpec, *, last_run: str | None, resumed: bool) -> None:
        """Bring a cancelled run to its last node, from wherever it was stopped."""
        state = await self._graph.aget_state(self._config)
        begun = resumed or state.values.get("run_id") != last_run
        if begun and not state.next:
            return  # it had come to its end already
        failure = Failure(reason="cancelled", kind="cancelled", node="caller", message="cancelled by the caller")
        values: dict[str, Any] = {"failure": failure}
        if "recall" in state.next or not state.next:
            values |= {**fresh(), "failure": failure, "spec": spec, "run_id": uuid.uuid4().hex}
        await self._graph.aupdate_state(self._config, values, as_node="evaluator")
        await self._graph.ainvoke(None, self._config, context=self._settings, durability="sync")
