"""The work on a batch: reads ahead, hands out, records what comes back, and stops in good order."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from reflexion.batch.economy import Economy, Savings, in_order
from reflexion.batch.engine import Engine, Job
from reflexion.batch.errors import NothingPossible, Unfinished
from reflexion.batch.jobs import Jobs, task_of
from reflexion.batch.journal import Due, Journal
from reflexion.batch.outage import Outage, blame
from reflexion.batch.progress import Listener, StoppedBy
from reflexion.batch.queueing import Queue
from reflexion.batch.reading import TaskReader
from reflexion.batch.records import Record, status_of
from reflexion.batch.tasks import BadLine
from reflexion.batch.writing import Writer
from reflexion.models import ROLES, scrub
from reflexion.nodes import ConfigurationError

logger = logging.getLogger(__name__)

_UNFUNDED = 5
"""So many tasks in a row for which the batch's money was not enough end it; a single one may only be too large."""
_UNREAD = 100
"""Records that wait for whoever iterates before no more are made."""
_RATED = 200
"""Tasks by which the rate is told."""
_MODELS = frozenset({"model", *(f"{role}_model" for role in ROLES)})
_TOLD = ("line", "id", "status", "error", "attempts_made", "requests", "tokens", "cost_usd")


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
        self._writer = Writer(journal, _keep if options.keep_threads else engine.forget)
        self._queue: Queue[Due] = Queue()
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._outage = Outage(self._wake.set, self.tell)
        self._jobs = Jobs(journal.batch_id, engine.settings, options.economy, self.tell)
        self._running: dict[asyncio.Task[None], Due] = {}
        self._at_model: set[asyncio.Task[None]] = set()
        """Those of them that may be broken off; what is paid for in full is recorded first."""
        self._all_read = False
        self._unfunded = 0
        self._unread = asyncio.Semaphore(_UNREAD)
        self._finished_at: deque[float] = deque(maxlen=_RATED)
        self._started, self._ended = time.monotonic(), 0.0
        self.records: asyncio.Queue[Record | None] = asyncio.Queue()
        """As they finish; None at the end. Who takes one out calls `taken`."""
        self.ran = 0
        self.stopped = ""
        self.stopped_by: StoppedBy = ""

    async def run(self) -> None:
        """Work through the input, to its end or until something stops it.

        Raises:
            BatchError: records cannot be written, or a finished task has changed.
        """
        seconds = self._options.deadline_s
        deadline = None
        if seconds is not None:
            over = f"the time of {seconds:g} s is over"
            deadline = asyncio.get_running_loop().call_later(seconds, lambda: self.stop("time", over, break_off=True))
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read())
                await self._hand_out(group)
                reading.cancel()
            await self._end()
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            self._ended = time.monotonic()
            if deadline:
                deadline.cancel()
            self._outage.close()
            await self._writer.aclose()
            self.records.put_nowait(None)

    def stop(self, by: StoppedBy, reason: str, *, break_off: bool = False) -> None:
        """Hand out no task any more; with `break_off` do not wait for those at work either."""
        if self._ended:
            return
        if not self.stopped:
            self.stopped, self.stopped_by = reason, by
            self.tell("stopped", reason=reason, by=by)
        if break_off:
            for task in self._at_model:
                task.cancel()
        self._room.set()
        self._wake.set()

    def taken(self) -> None:
        """A record was taken out."""
        self._unread.release()

    @property
    def running(self) -> int:
        """Tasks at work."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Tasks that were read and not handed out."""
        return len(self._queue)

    @property
    def paused(self) -> str:
        """Why no task is handed out for now; empty where they are."""
        return self._outage.reason

    @property
    def savings(self) -> Savings:
        """What tasks have to do without that are handed out now."""
        return self._jobs.savings

    @property
    def elapsed_s(self) -> float:
        """Seconds that it has worked."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def rate(self) -> float | None:
        """Tasks per second, lately."""
        if not self._finished_at:
            return None
        since = self._started if self.ran <= _RATED else self._finished_at[0]
        return len(self._finished_at) / max(1e-9, (self._ended or time.monotonic()) - since)

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
            if self.stopped:
                await self._list()
            elif self._reader.live or self._queue.full:
                self._wake.set()
            while self._queue.full and not self.stopped:
                self._room.clear()
                await self._room.wait()
        self._all_read = True
        self._wake.set()

    def _enqueue(self, due: Due) -> None:
        task = task_of(due)
        self._queue.put(due, place=due.item.line, priority=task.priority, size=len(task.task) + len(task.tests))

    async def _hand_out(self, group: asyncio.TaskGroup) -> None:
        """Keep as many tasks at work as may be; returns when none is left, or nobody waits for the rest."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._may_hand_out():
                due = self._queue.take()
                self._outage.handed_out(due)
                task = group.create_task(self._handle(due, self._jobs.make(due, self.left)))
                self._running[task] = due
                self._at_model.add(task)
                task.add_done_callback(self._end_of)
            if not self._queue.full:
                self._room.set()
            nothing_to_come = self._all_read or (self.stopped and self._reader.live)
            if not self._running and nothing_to_come and (self.stopped or not len(self._queue)):
                return

    def _may_hand_out(self) -> bool:
        if self.stopped or not len(self._queue) or len(self._running) >= self._options.concurrency:
            return False
        if self._engine.left() <= 0:
            self.stop("budget", "the budget is spent")
            return False
        return self._outage.lets_through

    def _end_of(self, task: asyncio.Task[None]) -> None:
        due = self._running.pop(task)
        if task.cancelled() and task in self._at_model:
            self._enqueue(due)
        self._at_model.discard(task)
        self._wake.set()

    async def _handle(self, due: Due, job: Job) -> None:
        self.tell("task_started", line=due.item.line, id=job.task_id)
        try:
            record = await self._record_of(due, job)
        except NothingPossible as end:
            self._enqueue(due)
            self.stop("engine", str(end))
            return
        self._at_model.discard(asyncio.current_task())
        result = record.result
        blamed = blame(result) if result and not _MODELS & task_of(due).context.keys() else "task"
        if blamed != "task" and not self._options.fail_fast:
            for waiting in self._outage.silent(record, due, lasting=blamed == "lasting"):
                self._enqueue(waiting)
            if self._outage.final:
                self.stop("refused" if blamed == "lasting" else "unreachable", self._outage.final)
            return
        if result and result["usage"]["requests"]:
            for suspect in self._outage.answered():
                await self._finish(*suspect)
        else:
            self._outage.untold(due)
        self._count_unfunded(record)
        if record.ended or due.before in {None, "not_run"}:  # a result of an earlier time is worth more than none
            await self._finish(record, due)

    async def _record_of(self, due: Due, job: Job) -> Record:
        line, name = due.item.line, job.task_id
        try:
            result = await self._engine.run(job)
        except NothingPossible:
            raise
        except Unfinished as end:
            return Record(line=line, id=name, status="not_run", error=str(end), result=end.result)
        except ConfigurationError as error:
            return Record(line=line, id=name, status="error", error=str(error))
        except Exception as error:
            logger.warning("task %r failed", name, exc_info=True)
            text = f"{type(error).__name__}: {scrub(str(error))}"
            return Record(line=line, id=name, status="error", error=text)
        status, text = status_of(result)
        return Record(line=line, id=name, status=status, error=text, result=result)

    def _count_unfunded(self, record: Record) -> None:
        self._unfunded = 0 if record.ended else self._unfunded + 1
        if self._unfunded >= _UNFUNDED:
            self.stop("budget", f"the budget is spent: {record.error}")

    async def _finish(self, record: Record, due: Due) -> None:
        await self._writer.add([(record, due)])
        if record.ended:
            self.ran += 1
            self._finished_at.append(time.monotonic())
        await self._deliver(record)
        if self._options.fail_fast and record.status == "error":
            self.stop("fail_fast", f"fail-fast: {record.id}: {record.error}", break_off=True)

    async def _deliver(self, record: Record) -> None:
        if self._options.listener is not None:
            whole = record.as_json()
            self.tell("task_finished", **{name: whole[name] for name in _TOLD})
        await self._unread.acquire()
        self.records.put_nowait(record)

    async def _end(self) -> None:
        for suspect in self._outage.suspects():
            await self._finish(*suspect)
        if self.stopped:
            await self._list()
        else:
            await asyncio.to_thread(self._journal.complete)
        await asyncio.to_thread(self._journal.settle)

    async def _list(self) -> None:
        """List what was read and is not run, unless it has a record of an earlier time."""
        listed = [
            (Record(line=due.item.line, id=task_of(due).id, status="not_run", error=self.stopped), due)
            for due in self._queue.drain()
            if due.before is None
        ]
        if listed:
            await self._writer.add(listed)
        for record, _ in listed:
            await self._deliver(record)


async def _keep(threads: Sequence[str]) -> None:
    """Forgets nothing."""
