"""A budget that any number of workers spend from together, kept in PostgreSQL or Redis."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple, Protocol

from reflexion.models.account import Account, Amount, Sum, needed_by, used_by
from reflexion.models.ends import SMALLEST_REPLY, DeadlineExceeded
from reflexion.models.errors import ModelError
from reflexion.models.exchange import Exchange
from reflexion.models.ledger import LOST, PENDING, LedgerLine

logger = logging.getLogger(__name__)

LEASE_S = 60.0
"""Seconds. A hold that is not renewed for so long belongs to a worker that died."""
POLL_S = 0.2
"""How often a patient call asks whether there is room by now, in seconds."""
MOST_USD = Decimal(9_000_000)
"""Redis computes with 53 bits: that many dollars can be counted in billionths."""


class Units(NamedTuple):
    """An amount in whole numbers, as databases count it without rounding."""

    nano: int = 0
    """Billionths of a USD; a fraction of one counts as one."""
    tokens: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """A budget as its database has it."""

    granted: bool
    """Whether what was asked for is set aside now."""
    spent: Units
    held: Units
    """Set aside for calls in flight."""
    lapsed: Units
    """Set aside for calls whose worker died: nobody knows what they cost, so the reservation counts."""


class BudgetStore(Protocol):
    """Keeps budgets by name. Each step is atomic, on the server's clock, and may be repeated."""

    async def reserve(
        self, name: str, hold: str, needed: Units, limit: tuple[int | None, int | None, int | None], lease_s: float
    ) -> Books:
        """Set the amount aside if it fits under the limit (None: no limit) beside all that is spent and set aside."""
        ...

    async def settle(self, name: str, hold: str, used: Units | None) -> None:
        """Replace what is set aside by what was used; None for nothing. Unknown holds were settled before."""
        ...

    async def renew(self, name: str, holds: Iterable[str], lease_s: float) -> None:
        """Prolong leases."""
        ...

    async def look(self, name: str) -> Books:
        """The books; a budget that nobody has used yet is empty."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class SharedBudget:
    """The outermost budget of runs on many workers: `Budget(…, parent=shared)`, or `agent.run(…, budget=shared)`.

    Its terms are those of `Budget`: reserve before a request, settle after it, the limit may be used up exactly. All
    workers name the same budget and should state the same limits. Where a worker dies, what it had set aside counts as
    spent, as the ledger counts its lost requests, unless `recover` learns what they cost.
    """

    parent = None

    def __init__(
        self,
        name: str,
        store: BudgetStore,
        *,
        usd: Decimal | None = None,
        tokens: int | None = None,
        requests: int | None = None,
        patient: bool = False,
        suspends: bool = False,
        lease_s: float = LEASE_S,
    ) -> None:
        """Share the budget of this name; see `Budget` for the limits, counted over all workers."""
        if usd is not None and not 0 <= usd <= MOST_USD:
            raise ValueError(f"a shared budget of {usd} USD cannot be counted: give 0 to {MOST_USD}")
        nano = None if usd is None else int((usd * 10**9).to_integral_value(ROUND_FLOOR))
        self.name = name
        self.limit = Amount(usd=None if nano is None else _usd(nano), tokens=tokens, requests=requests)
        self._units = (nano, tokens, requests)
        self._store = store
        self._lease_s = lease_s
        # The books as they were told last, with the rules of every budget.
        self._account = Account(name, self.limit, Decimal(1), patient, lambda: 0.0, 0.0, suspends)
        self._open: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._finishing: set[asyncio.Task[None]] = set()

    @property
    def remaining(self) -> Amount:
        """What was left when the database was asked last, never below 0; None: no limit."""
        room = self._account.room()
        return Amount(
            usd=None if room.usd is None else max(Decimal(0), room.usd),
            tokens=None if room.tokens is None else max(0, room.tokens),
            requests=None if room.requests is None else max(0, room.requests),
        )

    async def look(self) -> tuple[Amount, Amount]:
        """What is spent and what is reserved now, over all workers; `usd` only where it is limited."""
        self._learn(await self._store.look(self.name))
        return self._shown(self._account.used), self._shown(self._account.reserved)

    async def recover(self, lines: Iterable[LedgerLine]) -> None:
        """Settle what a run's earlier worker recorded and may not have settled before it died."""
        for line in lines:
            if line["outcome"] not in {PENDING, LOST}:
                await self._settle(line["id"], _units(used_by(line, Amount(usd=Decimal(0)))))

    @asynccontextmanager
    async def around(self, exchange: Exchange) -> AsyncIterator[None]:
        """Reserve for one request, and settle or free afterwards; may shorten `exchange.reply_tokens`.

        Raises:
            BudgetExhausted: it does not fit; nothing was reserved.
            DeadlineExceeded: the time ran out while it waited for room.
            ModelError: the database cannot be reached. Nothing is let through then, as others may be spending.
        """
        needed = await self._reserved(exchange)
        self._open.add(exchange.id)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            self._open.discard(exchange.id)
            if not self._open and self._renewing:
                self._renewing.cancel()
                self._renewing = None
            used = None if exchange.call is None else used_by(exchange.call, needed)
            self._account.settle(needed, used)  # for `remaining`, until the database is asked again
            await self._finished(self._settle(exchange.id, None if used is None else _units(used)))

    async def _reserved(self, exchange: Exchange) -> Amount:
        account = self._account
        while True:
            needed = needed_by(exchange, exchange.reply_tokens)
            if self.limit.usd is not None and needed.usd is None:
                account.check(needed)  # says that the price is unknown
            if await self._asked(exchange.id, needed):
                return needed
            smallest = min(SMALLEST_REPLY, exchange.reply_tokens)
            account.check(needed_by(exchange, smallest))
            longest = account.longest_reply(exchange, exchange.reply_tokens) or 0
            if longest < exchange.reply_tokens:
                exchange.reply_tokens = longest
            elif account.patient:
                await self._wait(exchange)

    async def _asked(self, hold: str, needed: Amount) -> bool:
        asking = asyncio.create_task(self._store.reserve(self.name, hold, _units(needed), self._units, self._lease_s))
        try:
            books = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._keep(self._freed_after(asking, hold))
            raise
        except ModelError:
            # It may have been set aside all the same.
            self._keep(self._settle(hold, None))
            raise
        self._learn(books)
        return books.granted

    async def _freed_after(self, asking: "asyncio.Task[Books]", hold: str) -> None:
        await asyncio.wait([asking])
        asking.exception()
        await self._settle(hold, None)

    async def _wait(self, exchange: Exchange) -> None:
        left_s = POLL_S if exchange.deadline is None else exchange.deadline - exchange.clock()
        if left_s <= 0:
            raise DeadlineExceeded(f"no time is left to wait for room in budget {self.name!r}")
        await asyncio.sleep(min(POLL_S, left_s))

    async def _settle(self, hold: str, used: Units | None) -> None:
        try:
            await self._store.settle(self.name, hold, used)
        except ModelError as error:
            logger.warning("budget %r keeps the reservation of request %s: %s", self.name, hold, error)

    async def _finished(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on to the end even when whoever waits for it is cancelled."""
        await asyncio.shield(self._keep(work))

    def _keep(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._store.renew(self.name, sorted(self._open), self._lease_s)
            except ModelError as error:
                logger.warning("no hold of budget %r is renewed: %s", self.name, error)

    def _learn(self, books: Books) -> None:
        self._account.used = _sum(books.spent, books.lapsed)
        self._account.reserved = _sum(books.held)

    def _shown(self, counted: Sum) -> Amount:
        usd = None if self.limit.usd is None else counted.usd
        return Amount(usd=usd, tokens=counted.tokens, requests=counted.requests)


def _units(amount: Amount) -> Units:
    nano = ((amount.usd or Decimal(0)) * 10**9).to_integral_value(ROUND_CEILING)
    return Units(int(nano), amount.tokens or 0, amount.requests or 0)


def _sum(*parts: Units) -> Sum:
    nano, tokens, requests = (sum(amounts) for amounts in zip(*parts, strict=True))
    return Sum(usd=_usd(nano), tokens=tokens, requests=requests)


def _usd(nano: int) -> Decimal:
    return Decimal(nano).scaleb(-9)
