"""A batch as Python calls it."""

import asyncio
import math
import weakref
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Self

from reflexion.batch.economy import Economy, in_order
from reflexion.batch.engine import Engine, Terms
from reflexion.batch.errors import OptionError
from reflexion.batch.journal import Journal
from reflexion.batch.local import LocalEngine
from reflexion.batch.progress import Listener, Progress
from reflexion.batch.reading import TaskReader, Tasks
from reflexion.batch.records import Record
from reflexion.batch.work import Options, Work
from reflexion.graphs.agent import Reflexion


def run_batch(
    tasks: Tasks,
    engine: Engine | Reflexion,
    *,
    out: Path | str | None = None,
    concurrency: int = 8,
    budget_usd: Decimal | float | str | None = None,
    budget_tokens: int | None = None,
    deadline_s: float | None = None,
    retry_failed: bool = False,
    accept_changes: bool = False,
    fail_fast: bool = False,
    keep_threads: bool = False,
    economy: Economy = in_order,
    listener: Listener | None = None,
) -> "Batch":
    """Many tasks, one budget, one record each.

    Args:
        tasks: see `Tasks`: a `pathlib.Path`, an open binary file, or tasks.
        engine: an open agent, or another `Engine`.
        out: the file of records; the same file again goes on with the batch. None to write nothing.
        concurrency: tasks at once, 1 or more.
        budget_usd: for all tasks together, earlier processes included.
        budget_tokens: the same in tokens.
        deadline_s: seconds that this call may work; what is at work then is broken off, and can be gone on with.
        retry_failed: run again what ended as `failed`, `unscored` or `error` before.
        accept_changes: go on although the settings, or finished tasks, are others than when the batch was begun.
        fail_fast: end at the first task in `error`; what is at work is broken off, and can be gone on with.
        keep_threads: keep the checkpoints of finished tasks.
        economy: what is given up as money or time runs short.
        listener: is told what happens; see `BatchEvent`.

    Raises:
        OptionError: one cannot be used.
    """
    if concurrency < 1:
        raise OptionError("concurrency", f"{concurrency} is no number of tasks: 1 or more is needed")
    try:
        usd = None if budget_usd is None else Decimal(str(budget_usd))
    except InvalidOperation:
        raise OptionError("budget_usd", f"{budget_usd!r} is no amount of money") from None
    for name, limit in {"budget_usd": usd, "budget_tokens": budget_tokens, "deadline_s": deadline_s}.items():
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise OptionError(name, f"{limit} is no limit: give a number above 0")
    options = Options(
        out=None if out is None else Path(out),
        concurrency=concurrency,
        budget_usd=usd,
        budget_tokens=budget_tokens,
        deadline_s=deadline_s,
        retry_failed=retry_failed,
        accept_changes=accept_changes,
        fail_fast=fail_fast,
        keep_threads=keep_threads,
        economy=economy,
        listener=listener,
    )
    return Batch(tasks, LocalEngine(engine) if isinstance(engine, Reflexion) else engine, options)


class Batch:
    """A batch. Iterate over it once, for its records as they finish.

    Whoever stops iterating ends it: what is at work is broken off and awaited, and can be gone on with. To be sure
    that this has happened before going on, use it as a context manager: `async with run_batch(…) as batch`.
    """

    def __init__(self, tasks: Tasks, engine: Engine, options: Options) -> None:
        self._tasks = tasks
        self._engine = engine
        self._options = options
        self._generator: weakref.ref[AsyncGenerator[Record, None]] | None = None
        self._over = asyncio.Event()
        self._over.set()
        self._work: Work | None = None
        self._journal: Journal | None = None
        self._reader: TaskReader | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[Record, None]:
        """The records.

        Raises:
            RuntimeError: they were asked for before.
            BatchError: the batch cannot be begun, or gone on with.
        """
        if self._generator is not None:
            raise RuntimeError("a batch is iterated over once")
        generator = self._records()
        # Not held: so it ends when whoever iterates lets go of it.
        self._generator = weakref.ref(generator)
        return generator

    async def aclose(self) -> None:
        """Break off what is at work, and await that."""
        generator = self._generator() if self._generator is not None else None
        if generator is not None:
            await generator.aclose()
        # Where nobody holds it any more, the event loop closes it.
        await self._over.wait()

    def stop(self, reason: str = "it was stopped") -> None:
        """Hand out no task any more; those at work come to their end, what is left is listed as `not_run`."""
        if self._work is not None:
            self._work.stop("asked", reason)

    async def progress(self) -> Progress:
        """How it stands."""
        work, journal, reader, options = self._work, self._journal, self._reader, self._options
        if work is None or journal is None or reader is None:
            raise RuntimeError("the batch has not begun")
        counts = {status: number for status, number in journal.counts.items() if number}
        spent = self._engine.spent()
        ended = sum(number for status, number in counts.items() if status != "not_run")
        factor = reader.expected / ended if reader.expected and ended else None
        return Progress(
            batch_id=journal.batch_id,
            counts=counts,
            bad_lines=journal.bad_lines,
            ran=work.ran,
            read=reader.taken,
            expected=reader.expected,
            running=work.running,
            waiting=work.waiting,
            elapsed_s=work.elapsed_s,
            rate=work.rate,
            spent=spent,
            budget_usd=options.budget_usd,
            budget_tokens=options.budget_tokens,
            forecast_usd=None if factor is None or spent.cost_usd is None else spent.cost_usd * Decimal(str(factor)),
            forecast_tokens=None if factor is None else round(spent.tokens * factor),
            left=work.left,
            savings=work.savings,
            paused=work.paused,
            stopped=work.stopped,
            stopped_by=work.stopped_by,
            health=await self._engine.health(),
        )

    async def _records(self) -> AsyncGenerator[Record, None]:
        options = self._options
        async with AsyncExitStack() as stack:
            self._over.clear()
            stack.callback(self._over.set)
            journal = self._journal = await asyncio.to_thread(
                Journal, options.out, retry=options.retry_failed, accept_changes=options.accept_changes
            )
            stack.push_async_callback(asyncio.to_thread, journal.close)
            await asyncio.to_thread(journal.check, self._engine.settings)
            reader = self._reader = await asyncio.to_thread(TaskReader, self._tasks, self._engine.settings)
            stack.callback(reader.close)
            terms = Terms(
                batch_id=journal.batch_id,
                budget_usd=options.budget_usd,
                budget_tokens=options.budget_tokens,
                resumed=journal.begun_before,
            )
            await self._engine.open(terms)
            stack.push_async_callback(self._engine.close)
            work = self._work = Work(self._engine, journal, reader, options)
            work.tell("batch_started", batch_id=journal.batch_id, finished=dict(journal.counts))
            working = asyncio.create_task(work.run())
            stack.push_async_callback(_ended, working)
            while (record := await work.records.get()) is not None:
                work.taken()
                yield record
            await working
            work.tell("batch_finished", complete=not work.stopped, ran=work.ran)


async def _ended(working: "asyncio.Task[None]") -> None:
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
