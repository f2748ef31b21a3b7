"""A line for every request, written before it is sent and completed after it, so that no crash hides what was spent."""

import copy
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from reflexion.models.exchange import Exchange
from reflexion.models.kept import KeptReply
from reflexion.models.usage import Call, Usage, decimal_text

log = logging.getLogger(__name__)

PENDING = "pending"
"""Outcome of a request that is in flight: its line holds the estimate."""
LOST = "lost"
"""Outcome of a request whose process died: nobody knows its usage, so the estimate counts."""

KEEP_S = 90 * 24 * 3600.0
"""How long lines are kept unless something else is asked for, in seconds."""
KEEP_REPLIES_S = 7 * 24 * 3600.0
"""How long the replies of a run are kept that was broken off and that nobody goes on with, in seconds."""

Group = Literal["role", "run_id", "thread_id", "batch_id", "model"]


class LedgerLine(Call):
    """A `Call` and where it belongs: plain JSON."""

    run_id: str
    thread_id: str
    batch_id: str
    endpoint: str
    retry: int
    """0 for the first try, 1 for its first repetition."""
    started_at: float
    """Seconds since 1970."""


class LedgerStore(Protocol):
    """Where lines are kept. A change that was begun is finished even when its caller is cancelled meanwhile."""

    async def write(self, line: LedgerLine, reply: KeptReply | None = None) -> None:
        """Add a line, or replace the one with the same id. It outlives the process once this returns.

        The reply that it paid for is kept with it, in the same transaction, until `forget`.
        """
        ...

    async def remove(self, line_id: str) -> None:
        """Delete a line, if it is there."""
        ...

    async def lines(
        self, *, run_id: str | None = None, thread_id: str | None = None, batch_id: str | None = None
    ) -> list[LedgerLine]:
        """The lines that match everything given, oldest first."""
        ...

    async def total(self, *, batch_id: str) -> Usage:
        """The sum of a batch's lines, however many these are."""
        ...

    async def replies(self, run_id: str) -> list[KeptReply]:
        """The replies that are kept of a run, oldest first; none where nothing outlives the process."""
        ...

    async def forget(self, run_id: str) -> None:
        """Delete a run's replies: checkpoints hold what came of them, or nobody goes on with it."""
        ...

    async def lose(self, run_id: str) -> int:
        """Mark a dead run's pending lines as lost; returns how many. Only for a run that is known to have ended."""
        ...

    async def prune(self, *, older_than_s: float = KEEP_S) -> int:
        """Delete the lines of requests that started longer ago than so many seconds; returns how many."""
        ...


class MemoryLedger:
    """Keeps lines as long as this object lives."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._lines: dict[str, LedgerLine] = {}
        self._now = now

    async def write(self, line: LedgerLine, reply: KeptReply | None = None) -> None:
        """Add or replace a line."""
        self._lines[line["id"]] = copy.copy(line)

    async def remove(self, line_id: str) -> None:
        """Delete a line, if it is there."""
        self._lines.pop(line_id, None)

    async def lines(
        self, *, run_id: str | None = None, thread_id: str | None = None, batch_id: str | None = None
    ) -> list[LedgerLine]:
        """The lines that match everything given, oldest first."""
        found = [
            copy.copy(line)
            for line in self._lines.values()
            if run_id in (None, line["run_id"])
            and thread_id in (None, line["thread_id"])
            and batch_id in (None, line["batch_id"])
        ]
        return sorted(found, key=lambda line: (line["started_at"], line["id"]))

    async def total(self, *, batch_id: str) -> Usage:
        """The sum of a batch's lines."""
        return Usage.of(line for line in self._lines.values() if line["batch_id"] == batch_id)

    async def replies(self, run_id: str) -> list[KeptReply]:
        """None: they die with the process."""
        return []

    async def forget(self, run_id: str) -> None:
        """Do nothing: no reply is kept."""

    async def lose(self, run_id: str) -> int:
        """Mark a dead run's pending lines as lost; returns how many."""
        pending = [line for line in self._lines.values() if line["run_id"] == run_id and line["outcome"] == PENDING]
        for line in pending:
            line["outcome"] = LOST
        return len(pending)

    async def prune(self, *, older_than_s: float = KEEP_S) -> int:
        """Delete the lines of requests that started longer ago than so many seconds; returns how many."""
        old = [key for key, line in self._lines.items() if line["started_at"] < self._now() - older_than_s]
        for key in old:
            del self._lines[key]
        return len(old)


class Ledger:
    """The guard that writes a run's lines through to a store, and keeps them at hand.

    Let it be the innermost guard: its line is then written directly before the request goes out. A line's id becomes
    the id of the exchange's `call`, so that state, ledger and logs name a request alike.
    """

    def __init__(
        self,
        store: LedgerStore | None = None,
        *,
        lines: Sequence[LedgerLine] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        """Start a run's ledger.

        Args:
            store: where lines are kept; None for nowhere else.
            lines: what the run had spent before.
            now: seconds since 1970.
        """
        self._store: LedgerStore = store or MemoryLedger()
        self._lines = {line["id"]: line for line in lines}
        self._now = now

    @classmethod
    async def resumed(cls, store: LedgerStore, run_id: str, *, now: Callable[[], float] = time.time) -> "Ledger":
        """The ledger of a run whose process has died: what it had in flight is lost, and counts as estimated.

        Call it while holding the lock of the run's thread, so that the run is known to be dead.
        """
        await store.lose(run_id)
        return cls(store, lines=await store.lines(run_id=run_id), now=now)

    @property
    def lines(self) -> list[LedgerLine]:
        """The run's lines, oldest first; those in flight are `pending`."""
        return list(self._lines.values())

    @property
    def usage(self) -> Usage:
        """The sum of the run's lines."""
        return Usage.of(self._lines.values())

    @asynccontextmanager
    async def around(self, exchange: Exchange) -> AsyncIterator[None]:
        """Write one request's line before it is sent, and complete it afterwards.

        Raises whatever the store raises where the first line cannot be written: nothing is sent unrecorded. Where the
        second cannot be written the reply is not lost for it; the store keeps the estimate, and a warning is logged.
        """
        line = _pending(exchange, self._now())
        self._lines[line["id"]] = line
        try:
            await self._store.write(line)
            yield
        finally:
            await self._complete(line, exchange)

    async def add(self, exchange: Exchange) -> None:
        """Write the line of what passed no guard because it was never sent, such as an answer from the cache."""
        line = _pending(exchange, self._now())
        self._lines[line["id"]] = line
        await self._complete(line, exchange)

    async def _complete(self, line: LedgerLine, exchange: Exchange) -> None:
        key = line["id"]
        try:
            if exchange.call is None:
                del self._lines[key]
                await self._store.remove(key)
            else:
                exchange.call["id"] = key
                self._lines[key] = LedgerLine(**{**line, **exchange.call})
                await self._store.write(self._lines[key], exchange.reply)
        except Exception:
            log.warning("ledger line %s keeps its estimate: it could not be completed", key, exc_info=True)


def as_call(line: LedgerLine) -> Call:
    """The line without where it belongs."""
    call: Call = {name: line[name] for name in Call.__annotations__}  # type: ignore[literal-required,assignment]
    return call


def grouped(lines: Iterable[LedgerLine], by: Group) -> dict[str, list[LedgerLine]]:
    """Lines by role, run, thread, batch or model."""
    groups: dict[str, list[LedgerLine]] = {}
    for line in lines:
        groups.setdefault(line[by], []).append(line)
    return groups


def sums(lines: Iterable[LedgerLine], by: Group) -> dict[str, Usage]:
    """Sum lines by role, run, thread, batch or model. Pending and lost ones count as estimated."""
    return {name: Usage.of(group) for name, group in grouped(lines, by).items()}


def _pending(exchange: Exchange, started_at: float) -> LedgerLine:
    cost = exchange.cost_usd(exchange.prompt_tokens, exchange.reply_tokens)
    return LedgerLine(
        id=exchange.id,
        role=exchange.role,
        attempt=exchange.attempt,
        model=exchange.model,
        returned_model="",
        prompt_tokens=exchange.prompt_tokens,
        completion_tokens=exchange.reply_tokens,
        cached_tokens=0,
        reasoning_tokens=0,
        cost_usd=None if cost is None else decimal_text(cost),
        estimated=True,
        latency_s=0.0,
        first_token_s=None,
        outcome=PENDING,
        run_id=exchange.run_id,
        thread_id=exchange.thread_id,
        batch_id=exchange.batch_id,
        endpoint=exchange.endpoint,
        retry=exchange.retry,
        started_at=started_at,
    )
