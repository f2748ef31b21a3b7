"""Caps on dollars, tokens, requests and time that hold with parallel calls and inside each other."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from typing import Literal

from reflexion.models.exchange import Exchange
from reflexion.models.meter import SMALLEST_REPLY, BudgetExhausted, DeadlineExceeded
from reflexion.models.usage import Call, Usage, decimal_text

LONGEST_REPLY = 1_000_000
"""Tokens. No reply is that long, and endpoints refuse such a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Money, tokens, requests and time. None: without a limit, or an unknown price."""

    usd: Decimal | None = None
    tokens: int | None = None
    requests: int | None = None
    seconds: float | None = None


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
    awaited on the way in, so what fitted then still fits.
    """

    def __init__(
        self,
        name: str = "run",
        *,
        usd: Decimal | None = None,
        tokens: int | None = None,
        requests: int | None = None,
        seconds: float | None = None,
        parent: "Budget | None" = None,
        overrun: int | Decimal = 1,
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
            parent: the budget that this one is inside of.
            overrun: the most that a call is expected to use of its reservation, as a factor of at least 1.
            spent: what was used before, such as a ledger's sum after a crash.
            elapsed_s: seconds that went by before.
            clock: seconds from any start.
        """
        if overrun < 1:
            raise ValueError(f"overrun {overrun} is less than 1: a reservation is meant to be used up")
        self.name = name
        self.limit = Amount(usd=usd, tokens=tokens, requests=requests, seconds=seconds)
        self.parent = parent
        self._account = _Account(name, self.limit, Decimal(overrun), clock, clock() - elapsed_s)
        if spent:
            self._account.used.add(Amount(usd=spent.cost_usd, tokens=spent.tokens, requests=spent.requests))
        outer = () if parent is None else parent._accounts  # noqa: SLF001 - of the same class
        self._accounts: tuple[_Account, ...] = (self._account, *outer)

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

    def reply_limit(self, exchange: Exchange) -> int | None:
        """The most reply tokens that fit into this and all outer budgets; None where nothing limits them.

        At most `exchange.reply_tokens` if that is set: without it, one call may reserve all that is left, and calls
        in parallel find nothing. At least `SMALLEST_REPLY`, or what is set if that is less.

        Raises:
            BudgetExhausted: not even a short reply fits.
            DeadlineExceeded: no time is left.
        """
        limit = exchange.reply_tokens or None
        smallest = _needs(exchange, min(SMALLEST_REPLY, limit or SMALLEST_REPLY))
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
        needed = _needs(exchange, exchange.reply_tokens)
        for account in self._accounts:
            account.check(needed)
        for account in self._accounts:
            account.reserved.add(needed)
            account.hasten(exchange)
        try:
            yield
        finally:
            for account in self._accounts:
                account.reserved.add(needed, sign=-1)
                if exchange.call is not None:
                    account.used.add(_really_used(exchange.call, needed))


@dataclass(slots=True)
class _Sum:
    usd: Decimal = Decimal(0)
    tokens: int = 0
    requests: int = 0
    unpriced: int = 0
    """Amounts whose price is unknown."""

    @property
    def cost_usd(self) -> Decimal | None:
        return None if self.unpriced else self.usd

    def add(self, amount: Amount, *, sign: Literal[1, -1] = 1) -> None:
        self.usd += sign * (amount.usd or 0)
        self.tokens += sign * (amount.tokens or 0)
        self.requests += sign * (amount.requests or 0)
        self.unpriced += sign * (amount.usd is None)


@dataclass(slots=True)
class _Account:
    """One budget's own books, without those around it."""

    name: str
    limit: Amount
    overrun: Decimal
    clock: Callable[[], float]
    started: float
    used: _Sum = field(default_factory=_Sum)
    reserved: _Sum = field(default_factory=_Sum)

    def elapsed_s(self) -> float:
        return self.clock() - self.started

    def room(self) -> Amount:
        limit, used, held = self.limit, self.used, self.reserved
        return Amount(
            usd=None if limit.usd is None or used.unpriced else limit.usd - used.usd - held.usd * self.overrun,
            tokens=None if limit.tokens is None else limit.tokens - used.tokens - ceil(held.tokens * self.overrun),
            requests=None if limit.requests is None else limit.requests - used.requests - held.requests,
            seconds=None if limit.seconds is None else limit.seconds - self.elapsed_s(),
        )

    def check(self, needed: Amount) -> None:
        room = self.room()
        if room.seconds is not None and room.seconds <= 0:
            raise DeadlineExceeded(f"budget {self.name!r} of {self.limit.seconds:g} s: no time is left")
        if self.limit.usd is not None and (room.usd is None or needed.usd is None):
            raise BudgetExhausted(
                f"budget {self.name!r} of {decimal_text(self.limit.usd)} USD cannot be kept: the model's price is "
                "unknown; state it in REFLEXION_PRICES, or set a budget in tokens"
            )
        for unit in _UNITS:
            left = getattr(room, unit)
            if left is not None and getattr(needed, unit) > left:
                raise BudgetExhausted(self._refusal(unit, needed))

    def _refusal(self, unit: str, needed: Amount) -> str:
        limit, spent, reserved, next_call = (
            decimal_text(Decimal(getattr(amount, unit))) for amount in (self.limit, self.used, self.reserved, needed)
        )
        counted = f" (counted {self.overrun} times)" if self.overrun > 1 and unit != "requests" else ""
        return (
            f"budget {self.name!r} of {limit} {_UNITS[unit]}: {spent} spent, {reserved} reserved{counted}, "
            f"the next call needs {next_call}"
        )

    def longest_reply(self, exchange: Exchange, limit: int | None) -> int | None:
        room = self.room()
        longest = LONGEST_REPLY if limit is None else limit
        if room.tokens is not None:
            longest = min(longest, room.tokens - exchange.prompt_tokens)
        if room.usd is not None:
            longest = _affordable(exchange, room.usd, longest)
        return limit if longest == LONGEST_REPLY else longest

    def hasten(self, exchange: Exchange) -> None:
        left_s = self.room().seconds
        if left_s is not None:
            ends = exchange.clock() + left_s
            exchange.deadline = ends if exchange.deadline is None else min(exchange.deadline, ends)


_UNITS = {"usd": "USD", "tokens": "tokens", "requests": "requests"}


def _really_used(call: Call, reserved: Amount) -> Amount:
    return Amount(
        usd=reserved.usd if call["cost_usd"] is None else Decimal(call["cost_usd"]),
        tokens=call["prompt_tokens"] + call["completion_tokens"],
        requests=1,
    )


def _needs(exchange: Exchange, reply_tokens: int) -> Amount:
    return Amount(
        usd=exchange.cost_usd(exchange.prompt_tokens, reply_tokens),
        tokens=exchange.prompt_tokens + reply_tokens,
        requests=1,
    )


def _affordable(exchange: Exchange, room_usd: Decimal, longest: int) -> int:
    """Tokens of reply that fit into the money, by bisection: prices may be tiered."""

    def fits(reply_tokens: int) -> bool:
        cost = exchange.cost_usd(exchange.prompt_tokens, reply_tokens)
        return cost is not None and cost <= room_usd

    if fits(longest):
        return longest
    low, high = 0, longest - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
