"""The work on a batch: reads ahead, hands out, records what comes back, and stops in good order."""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from reflexion.batch.economy import Economy, Savings, in_order, saving
from reflexion.batch.engine import Engine, Job
from reflexion.batch.errors import NothingPossible
from reflexion.batch.journal import Due, Journal
from reflexion.batch.outage import Suspects, blame
from reflexion.batch.progress import Listener
from reflexion.batch.queueing import Queue
from reflexion.batch.reading import TaskReader
from reflexion.batch.records import Record, ends_with_the_batch, status_of
from reflexion.batch.tasks import BadLine, Numbered, Task
from reflexion.batch.writing import Writer
from reflexion.models import ROLES, scrub
from reflexion.nodes import ConfigurationError, make_settings

logger = logging.getLogger(__name__)

_THREADS = uuid.UUID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
"""Namespace of the names of threads."""
_UNFUNDED = 5
"""So many tasks in a row for which the batch's money was not enough end it; a single one may only be too large."""
_UNREAD = 100
"""Records that wait for whoever iterates before no more are made."""
_RATED = 200
"""Tasks by which the rate is told."""
_MODELS = frozenset({"model", *(f"{role}_model" for role in ROLES)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a batch is worked on; see `run_batch`."""

    out: Path | None = None
    concurrency: int = 8
    budget_usd: Decimal | None = None
    budget_tokens: int | None = None
    deadline_s: float | None = None
    retry_failed: bool = False
    accept_changes: bool = False
    fail_fast: bool = False
    keep_threads: bool = False
    economy: Economy = in_order
    listener: Listener | None = None


class Work:
    """One process's work on a batch."""

    def __init__(self, engine: Engine, journal: Journal, reader: TaskReader, options: Options) -> None:
        self._engine = engine
        self._journal = journal
        self._reader = reader
        self._options = options
        self._settings = engine.settings
        self._writer = Writer(journal, engine.forget if not options.keep_threads else _keep)
        self._queue: Queue[Due] = Queue()
        self._suspects: Suspects[tuple[Record, Due]] = Suspects()
        self._running: dict[asyncio.Task[None], Due] = {}
        self._left: list[Due] = []
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._all_read = False
        self._probes = 0
        self._probe: Due | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._unfunded = 0
        self._unread = asyncio.Semaphore(_UNREAD)
        self._finished_at: deque[float] = deque(maxlen=_RATED)
        self._started = time.monotonic()
        self.records: asyncio.Queue[Record | None] = asyncio.Queue()
        """As they finish; None at the end. Who takes one out calls `taken`."""
        self.savings = Savings()
        self.ran = 0
        self.paused = ""
        self.stopped = ""

    def taken(self) -> None:
        """A record was taken out."""
        self._unread.release()

    async def run(self) -> None:
        """Work through the input, to its end or until something stops it.

        Raises:
            BatchError: records cannot be written, or a finished task has changed.
        """
        loop = asyncio.get_running_loop()
        limit = self._options.deadline_s
        over = f"the time of {limit:g} s is over" if limit else ""
        deadline = loop.call_later(limit, lambda: self.stop(over, break_off=True)) if limit else None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read())
                group.create_task(self._hand_out(group))
            await self._end()
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            for timer in (deadline, self._pause):
                if timer:
                    timer.cancel()
            await self._writer.aclose()
            self.records.put_nowait(None)

    def stop(self, reason: str, *, break_off: bool = False) -> None:
        """Hand out no task any more; with `break_off` do not wait for those at work either."""
        if not self.stopped:
            self.stopped = reason
            self.tell("stopped", reason=reason)
        if break_off:
            for task in self._running:
                task.cancel()
        self._room.set()
        self._wake.set()

    @property
    def running(self) -> int:
        """Tasks at work."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Tasks that were read and not handed out."""
        return len(self._queue)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def rate(self) -> float | None:
        """Tasks per second, lately."""
        if not self._finished_at:
            return None
        since = self._started if self.ran <= _RATED else self._finished_at[0]
        return len(self._finished_at) / max(1e-9, time.monotonic() - since)

    @property
    def left(self) -> float:
        """The share of money or time that is left, 0..1, whichever is less."""
        limit = self._options.deadline_s
        time_left = 1.0 if limit is None else max(0.0, 1 - self.elapsed_s / limit)
        return min(self._engine.left(), time_left)

    def tell(self, event: str, **fields: Any) -> None:
        """Tell the listener, whose failure is not the batch's."""
        if self._options.listener is None:
            return
        try:
            self._options.listener({"event": event, **fields})
        except Exception:
            logger.exception("the listener of the batch failed at %s", event)

    async def _read(self) -> None:
        while chunk := await self._reader.chunk():
            for due in await asyncio.to_thread(self._journal.due, chunk):
                if isinstance(due.item, BadLine):
                    record = Record(line=due.item.line, id=due.item.id, status="error", error=due.item.error)
                    await self._finish(record, due)
                else:
                    self._enqueue(due)
            if self._reader.live or self._queue.full:
                self._wake.set()
            while self._queue.full and not self.stopped:
                self._room.clear()
                await self._room.wait()
            if self.stopped:
                if self._reader.live:
                    break
                await self._list()
        self._all_read = True
        self._wake.set()

    def _enqueue(self, due: Due) -> None:
        item = due.item
        assert isinstance(item, Numbered)
        self._queue.put(due, place=item.line, priority=item.task.priority, size=item.size)

    async def _hand_out(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._may_hand_out():
                due = self._queue.take()
                if self.paused:
                    self._probes, self._probe = self._probes - 1, due
                self._running[group.create_task(self._handle(due, self._job(due)))] = due
                if not self._queue.full:
                    self._room.set()
            if not self._running and self._all_read and (self.stopped or not len(self._queue)):
                return

    def _may_hand_out(self) -> bool:
        if self.stopped or not len(self._queue) or len(self._running) >= self._options.concurrency:
            return False
        if self._engine.left() <= 0:
            self.stop("the budget is spent")
            return False
        return not self.paused or self._probes > 0

    def _job(self, due: Due) -> Job:
        task = _task(due)
        settings: Mapping[str, Any] = task.context
        savings = self._options.economy(self.left)
        if savings != self.savings:
            self.savings = savings
            self.tell("saving", left=self.left, **asdict(savings))
        if savings != Savings():
            settings = {**settings, **saving(make_settings(self._settings, **settings), savings)}
        name = f"{self._journal.batch_id}/{task.id}/{due.item.fingerprint}/{due.tries}"
        self.tell("task_started", line=due.item.line, id=task.id)
        return Job(
            batch_id=self._journal.batch_id,
            task_id=task.id,
            thread_id=str(uuid.uuid5(_THREADS, name)),
            task=task.task,
            tests=task.tests,
            expect=task.expect,
            criteria=task.criteria,
            settings=settings,
            priority=task.priority,
        )

    async def _handle(self, due: Due, job: Job) -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            record = await self._record_of(due, job)
        finally:
            # From here on nothing breaks it off any more: it is paid for, and is to be written.
            held = self._running.pop(this)
        try:
            if record is not None:
                await self._settle(record, held)
        finally:
            self._wake.set()

    async def _record_of(self, due: Due, job: Job) -> Record | None:
        """What came of the task; None where it is to be run again."""
        line, name = due.item.line, job.task_id
        try:
            result = await self._engine.run(job)
        except asyncio.CancelledError:
            self._left.append(due)
            self._wake.set()
            raise
        except NothingPossible as end:
            self._left.append(due)
            self.stop(str(end))
            return None
        except Exception as error:
            if not isinstance(error, ConfigurationError):
                logger.warning("task %r failed", name, exc_info=True)
            text = (
                str(error) if isinstance(error, ConfigurationError) else f"{type(error).__name__}: {scrub(str(error))}"
            )
            return Record(line=line, id=name, status="error", error=text)
        status, text = status_of(result)
        return Record(line=line, id=name, status=status, error=text, result=result)

    async def _settle(self, record: Record, due: Due) -> None:
        """Record what came of a task, unless its endpoint is down."""
        result = record.result
        blamed = blame(result) if result and not _MODELS & _task(due).context.keys() else "nobody"
        if blamed != "nobody" and not self._options.fail_fast:
            self._suspect(record, due, lasting=blamed == "lasting")
            return
        if result and result["usage"]["requests"]:
            await self._answered()
        elif due is self._probe:
            self._probes += 1
        if result and ends_with_the_batch(result) and not result["attempts"]:
            self._unfunded += 1
            if self._unfunded >= _UNFUNDED:
                self.stop(f"the budget is spent: {record.error}")
        else:
            self._unfunded = 0
        await self._finish(record, due)

    def _suspect(self, record: Record, due: Due, *, lasting: bool) -> None:
        if self.paused:
            self._enqueue(due)
            if due is self._probe:
                self._wait_for_endpoint(record.error)
        elif self._suspects.add((record, due)):
            for _, held in self._suspects.release():
                self._enqueue(held)
            if lasting:
                self.stop(record.error)
            else:
                self._wait_for_endpoint(record.error)

    def _wait_for_endpoint(self, reason: str) -> None:
        seconds = self._suspects.next_pause_s()
        if seconds is None:
            self.stop(f"the endpoint stays down: {reason}")
            return
        self.paused, self._probe = reason, None
        self.tell("paused", reason=reason, seconds=seconds)

        def probe() -> None:
            self._probes = 1
            self._wake.set()

        self._pause = asyncio.get_running_loop().call_later(seconds, probe)

    async def _answered(self) -> None:
        """The endpoint answers: what it did not answer before was not its fault."""
        if self.paused:
            self.paused, self._probes, self._probe = "", 0, None
            if self._pause:
                self._pause.cancel()
            self.tell("resumed")
        self._suspects.over()
        for record, due in self._suspects.release():
            await self._finish(record, due)

    async def _finish(self, record: Record, due: Due) -> None:
        await self._writer.add([(record, due)])
        self.ran += record.ended
        if record.ended:
            self._finished_at.append(time.monotonic())
        await self._deliver(record)
        if self._options.fail_fast and record.status == "error":
            self.stop(f"fail-fast: {record.id}: {record.error}", break_off=True)

    async def _deliver(self, record: Record) -> None:
        whole = record.as_json()
        told = ("line", "id", "status", "error", "attempts_made", "requests", "tokens", "cost_usd")
        self.tell("task_finished", **{name: whole[name] for name in told})
        await self._unread.acquire()
        self.records.put_nowait(record)

    async def _end(self) -> None:
        for record, due in self._suspects.release():
            await self._finish(record, due)
        if self.stopped:
            for due in self._left:
                self._enqueue(due)
            await self._list()
        else:
            await asyncio.to_thread(self._journal.complete)
        await asyncio.to_thread(self._journal.settle)

    async def _list(self) -> None:
        """List what was read and is not run."""
        listed = [
            (Record(line=due.item.line, id=_task(due).id, status="not_run", error=self.stopped), due)
            for due in self._queue.drain()
            if due.before is None
        ]
        if listed:
            await self._writer.add(listed)
        for record, _ in listed:
            await self._deliver(record)


def _task(due: Due) -> Task:
    assert isinstance(due.item, Numbered)
    return due.item.task


async def _keep(threads: Sequence[str]) -> None:
    """Forgets nothing."""
