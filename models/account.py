"""One budget's own books: what is spent, what is set aside, and what still fits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from decimal import Decimal
from math import ceil
from typing import Any, Literal

from reflexion.models.ends import BudgetExhausted, DeadlineExceeded, Suspended
from reflexion.models.exchange import Exchange
from reflexion.models.usage import Call, decimal_text

LONGEST_REPLY = 1_000_000
"""Tokens. No reply is that long, and endpoints refuse such a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Money, tokens, requests and time. None: without a limit, or an unknown price."""

    usd: Decimal | None = None
    tokens: int | None = None
    requests: int | None = None
    seconds: float | None = None

    def without(self, used: "Amount") -> "Amount":
        """What of this limit is not used; None: no limit, or one that an unknown price defeats."""

        def rest(limit: Any, taken: Any) -> Any:
            return None if limit is None or taken is None else limit - taken

        return Amount(**{unit: rest(getattr(self, unit), getattr(used, unit)) for unit in UNITS})

    def share(self, left: "Amount") -> float:
        """Which share of this limit is left, 0..1, in whichever unit is shortest; 1 where there is no limit."""
        pairs = [(getattr(left, unit), getattr(self, unit)) for unit in UNITS]
        shares = [float(rest / limit) if limit else 0.0 for rest, limit in pairs if None not in (rest, limit)]
        return max(0.0, min([1.0, *shares]))


UNITS = tuple(unit.name for unit in fields(Amount))


@dataclass(slots=True)
class Sum:
    """A sum of amounts, from which they can be taken again."""

    usd: Decimal = Decimal(0)
    tokens: int = 0
    requests: int = 0
    unpriced: int = 0
    """Amounts whose price is unknown."""

    @property
    def cost_usd(self) -> Decimal | None:
        """USD; None where the price of an amount is unknown."""
        return None if self.unpriced else self.usd

    def add(self, amount: Amount, *, sign: Literal[1, -1] = 1) -> None:
        """Add an amount, or with `sign=-1` take it back."""
        self.usd += sign * (amount.usd or 0)
        self.tokens += sign * (amount.tokens or 0)
        self.requests += sign * (amount.requests or 0)
        self.unpriced += sign * (amount.usd is None)


@dataclass(slots=True)
class Account:
    """One budget's own books, without those around it."""

    name: str
    limit: Amount
    overrun: Decimal
    patient: bool
    clock: Callable[[], float]
    started: float
    suspends: bool = False
    used: Sum = field(default_factory=Sum)
    reserved: Sum = field(default_factory=Sum)
    settlement: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call in flight has ended; the next call to end has another one."""

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started

    def room(self, *, without_flights: bool = False) -> Amount:
        """What the next call may reserve; None where there is no limit. Negative after an overrun.

        With `without_flights` as if the calls in flight were to use nothing.
        """
        limit, used, held = self.limit, self.used, Sum() if without_flights else self.reserved
        return Amount(
            usd=None if limit.usd is None or used.unpriced else limit.usd - used.usd - held.usd * self.overrun,
            tokens=None if limit.tokens is None else limit.tokens - used.tokens - ceil(held.tokens * self.overrun),
            requests=None if limit.requests is None else limit.requests - used.requests - held.requests,
            seconds=None if limit.seconds is None else limit.seconds - self.elapsed_s(),
        )

    def check(self, needed: Amount) -> None:
        """Raise `BudgetExhausted` or `DeadlineExceeded` where it does not fit; if patient, where it never will."""
        room = self.room(without_flights=self.patient)
        if room.seconds is not None and room.seconds <= 0:
            raise DeadlineExceeded(f"budget {self.name!r} of {self.limit.seconds:g} s: no time is left")
        if self.limit.usd is not None and (room.usd is None or needed.usd is None):
            raise self._ends(
                f"budget {self.name!r} of {decimal_text(self.limit.usd)} USD cannot be kept: the model's price is "
                "unknown; state it in REFLEXION_PRICES, or set a budget in tokens"
            )
        if unit := _lacking(needed, room):
            raise self._ends(self._refusal(unit, needed))

    def fits(self, needed: Amount) -> bool:
        """Whether it can be reserved now; `check` has said so already unless the budget is patient."""
        return not self.patient or _lacking(needed, self.room()) is None

    def settle(self, reserved: Amount, used: Amount | None) -> None:
        """End a call: free what was reserved, and book what it used, if it was sent."""
        self.reserved.add(reserved, sign=-1)
        if used is not None:
            self.used.add(used)
        ended, self.settlement = self.settlement, asyncio.Event()
        ended.set()

    @property
    def _ends(self) -> type[BudgetExhausted]:
        return Suspended if self.suspends else BudgetExhausted

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
        """The most tokens of reply, at most `limit`, that fit; None where there is no limit."""
        room = self.room(without_flights=self.patient)
        longest = LONGEST_REPLY if limit is None else limit
        if room.tokens is not None:
            longest = min(longest, room.tokens - exchange.prompt_tokens)
        if room.usd is not None:
            longest = _affordable(exchange, room.usd, longest)
        return limit if longest == LONGEST_REPLY else longest

    def hasten(self, exchange: Exchange) -> None:
        """Bring the exchange's deadline forward to the end of the budget's time."""
        if self.limit.seconds is not None:
            ends = exchange.clock() + self.limit.seconds - self.elapsed_s()
            exchange.deadline = ends if exchange.deadline is None else min(exchange.deadline, ends)


_UNITS = {"usd": "USD", "tokens": "tokens", "requests": "requests"}


def _lacking(needed: Amount, room: Amount) -> str | None:
    """The unit of which there is not enough."""
    for unit in _UNITS:
        left = getattr(room, unit)
        if left is not None and getattr(needed, unit) > left:
            return unit
    return None


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


def needed_by(exchange: Exchange, reply_tokens: int) -> Amount:
    """What is reserved for a request whose reply is no longer than that."""
    return Amount(
        usd=exchange.cost_usd(exchange.prompt_tokens, reply_tokens),
        tokens=exchange.prompt_tokens + reply_tokens,
        requests=1,
    )


def used_by(call: Call, reserved: Amount) -> Amount:
    """What a request has used; where its price is unknown, what was reserved for it."""
    return Amount(
        usd=reserved.usd if call["cost_usd"] is None else Decimal(call["cost_usd"]),
        tokens=call["prompt_tokens"] + call["completion_tokens"],
        requests=1,
    )
