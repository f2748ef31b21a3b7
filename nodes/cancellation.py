"""The caller's wish to end a run: it breaks off the step that is at work, and the run then ends the usual way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Cancelled(Exception):  # noqa: N818 - an end, not an error
    """The caller wants the run to end with what it has."""


class Cancellation:
    """One run's; steps find it in `current`, since a run's context is its settings and nothing else."""

    def __init__(self) -> None:
        self._wish = asyncio.Event()
        self._step: asyncio.Task[object] | None = None

    def wish(self) -> None:
        """Break off the step that is at work; later ones do not begin."""
        self._wish.set()
        if self._step is not None:
            self._step.cancel()

    async def wished(self) -> None:
        """Wait for the wish."""
        await self._wish.wait()

    @contextmanager
    def around_step(self) -> Iterator[None]:
        """Surround the work of a step.

        Raises:
            Cancelled: the run is to end. A cancellation by anybody else stays a `CancelledError`.
        """
        if self._wish.is_set():
            raise Cancelled("cancelled by the caller")
        step = asyncio.current_task()
        # An actor may be a graph with steps of its own.
        outer, self._step = self._step, step
        try:
            yield
        except asyncio.CancelledError:
            if self._wish.is_set() and step is not None and step.uncancel() == 0:
                raise Cancelled("cancelled by the caller") from None
            raise
        finally:
            self._step = outer


current: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)
