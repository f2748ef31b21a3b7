"""Caps on dollars, tokens, requests and time that hold with parallel calls and inside each other."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from decimal import Decimal

from reflexion.models.account import Account, Amount, needed_by, used_by
from reflexion.models.ends import SMALLEST_REPLY, DeadlineExceeded
from reflexion.models.exchange import Exchange
from reflexion.models.shared_budget import SharedBudget
from reflexion.models.usage import Usage, decimal_text


class Budget:
    """A guard that refuses what could not be paid for any more. Nest it by `parent`: run in thread in batch.

    A request is reserved in this budget and in all around it before it is sent (its prompt's estimate plus its
    longest reply), settled with the ledger line's real usage afterwards, and freed where it was never sent. Checking
    and reserving happen without an `await` in between, so in one event loop no two calls pass the same check.
    What uses a limit up exactly is allowed; of time there must be some left.

    What may be overspent: a reply that uses more than was reserved for it, because the prompt was estimated too low or
    the endpoint ignores the limit of the reply. Each call in flight at that moment can do so by its own excess. With
    `overrun` set to the most that a call may use of its reservation (2: twice as much), calls in flight are counted at
    that, and the sum exceeds the cap by the excess of one single call at most.

    Let it be the outermost guard and set `exchange.reply_tokens` by `reply_limit` directly before entering: nothing is
    awaited on the way in, so what fitted then still fits. Only a `patient` or shared budget may wait there, and may
    shorten `exchange.reply_tokens` then: send what it says after entering.
    """

    def __init__(
        self,
        name: str = "run",
        *,
        usd: Decimal | None = None,
        tokens: int | None = None,
        requests: int | None = None,
        seconds: float | None = None,
        parent: "Budget | SharedBudget | None" = None,
        overrun: int | Decimal = 1,
        patient: bool = False,
        suspends: bool = False,
        spent: Usage | None = None,
        elapsed_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start a budget; its time runs from now.

        Args:
            name: what messages call it.
            usd: cap in USD.
            tokens: cap on prompt and completion tokens together.
            requests: cap on HTTP requests, repeated ones included.
            seconds: cap on wall-clock time.
            parent: the budget that this one is inside of. The outermost may be one that many workers share.
            overrun: the most that a call is expected to use of its reservation, as a factor of at least 1.
            patient: whether a call that only the calls in flight keep from fitting waits for them to end, as fits a
                batch whose replies are mostly shorter than what is reserved for them; else it is refused.
            suspends: whether a run that is refused a call is left as it is, to be gone on with; else it ends with what
                it has.
            spent: what was used before, such as a ledger's sum after a crash.
            elapsed_s: seconds that went by before.
            clock: seconds from any start.
        """
        if overrun < 1:
            raise ValueError(f"overrun {overrun} is less than 1: a reservation is meant to be used up")
        self.name = name
        self.limit = Amount(usd=usd, tokens=tokens, requests=requests, seconds=seconds)
        self.parent = parent
        self._account = Account(name, self.limit, Decimal(overrun), patient, clock, clock() - elapsed_s, suspends)
        if spent:
            self._account.used.add(Amount(usd=spent.cost_usd, tokens=spent.tokens, requests=spent.requests))
        outer = parent._accounts if isinstance(parent, Budget) else ()  # noqa: SLF001 - of the same class
        self._accounts: tuple[Account, ...] = (self._account, *outer)
        self.shared: SharedBudget | None = parent.shared if isinstance(parent, Budget) else parent
        """The outermost one, if it is shared by many workers."""

    @property
    def used(self) -> Amount:
        """What settled calls have used, and the time that went by; `usd` is None once a price was unknown."""
        used = self._account.used
        return Amount(usd=used.cost_usd, tokens=used.tokens, requests=used.requests, seconds=self._account.elapsed_s())

    @property
    def reserved(self) -> Amount:
        """What is set aside for calls in flight; `usd` is None while the price of one is unknown."""
        held = self._account.reserved
        return Amount(usd=held.cost_usd, tokens=held.tokens, requests=held.requests)

    @property
    def remaining(self) -> Amount:
        """What the next call may reserve, never below 0. None: no limit, or one that an unknown price defeats."""
        room = self._account.room()
        return Amount(
            usd=None if room.usd is None else max(Decimal(0), room.usd),
            tokens=None if room.tokens is None else max(0, room.tokens),
            requests=None if room.requests is None else max(0, room.requests),
            seconds=None if room.seconds is None else max(0.0, room.seconds),
        )

    def left(self) -> dict[str, str | int | float]:
        """As `remaining`, over this and all outer budgets, plain JSON: by unit, `usd` as text; no limit, no entry."""
        tightest: dict[str, Decimal | int | float] = {}
        budget: Budget | SharedBudget | None = self
        while budget is not None:
            for unit, amount in asdict(budget.remaining).items():
                if amount is not None:
                    tightest[unit] = min(amount, tightest.get(unit, amount))
            budget = budget.parent
        return {unit: decimal_text(n) if isinstance(n, Decimal) else n for unit, n in tightest.items()}

    def reply_limit(self, exchange: Exchange) -> int | None:
        """The most reply tokens that fit into this and all outer budgets; None where nothing limits them.

        At most `exchange.reply_tokens` if that is set: without it, one call may reserve all that is left, and calls
        in parallel find nothing. At least `SMALLEST_REPLY`, or what is set if that is less.

        Raises:
            BudgetExhausted: not even a short reply fits. `Suspended` is one too.
            DeadlineExceeded: no time is left.
        """
        limit = exchange.reply_tokens or None
        smallest = needed_by(exchange, min(SMALLEST_REPLY, limit or SMALLEST_REPLY))
        for account in self._accounts:
            account.check(smallest)
            limit = account.longest_reply(exchange, limit)
        return limit

    @asynccontextmanager
    async def around(self, exchange: Exchange) -> AsyncIterator[None]:
        """Reserve for one request, and settle or free afterwards. Brings the exchange's deadline forward to its own.

        Raises:
            BudgetExhausted: it does not fit; nothing was reserved.
            DeadlineExceeded: no time is left.
        """
        needed = self._checked(exchange)
        while full := next((account for account in self._accounts if not account.fits(needed)), None):
            await self._settlement(full, exchange)
            needed = self._checked(exchange)
        for account in self._accounts:
            account.reserved.add(needed)
            account.hasten(exchange)
        try:
            async with self.shared.around(exchange) if self.shared else nullcontext():
                yield
        finally:
            used = None if exchange.call is None else used_by(exchange.call, needed)
            for account in self._accounts:
                account.settle(needed, used)

    def _checked(self, exchange: Exchange) -> Amount:
        needed = needed_by(exchange, exchange.reply_tokens)
        for account in self._accounts:
            account.check(needed)
        return needed

    async def _settlement(self, full: Account, exchange: Exchange) -> None:
        """Wait until a call in flight ends; shorten the reply where less is left then."""
        for account in self._accounts:
            account.hasten(exchange)
        left_s = None if exchange.deadline is None else exchange.deadline - exchange.clock()
        try:
            async with asyncio.timeout(left_s):
                await full.settlement.wait()
        except TimeoutError:
            raise DeadlineExceeded(f"no time is left to wait for room in budget {full.name!r}") from None
        if exchange.reply_tokens:
            exchange.reply_tokens = self.reply_limit(exchange) or exchange.reply_tokens
