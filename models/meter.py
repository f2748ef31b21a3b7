"""Counts what calls use and holds them within what the run may still spend."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from reflexion.models.usage import Call, Usage

SMALLEST_REPLY = 64
"""Tokens. A call that could not pay for even such a reply is not sent."""


class BudgetExhausted(Exception):  # noqa: N818 - an end, not an error
    """The next call would cost more than the run may still spend."""


class DeadlineExceeded(Exception):  # noqa: N818 - an end, not an error
    """The run has used up its time."""


@dataclass(slots=True, kw_only=True)
class Meter:
    """One node's share of a run: its ledger lines, and the run's limits."""

    role: str
    attempt: int
    spent: Usage = field(default_factory=Usage)
    """What the run had used before this node."""
    budget_usd: Decimal | None = None
    budget_tokens: int | None = None
    deadline: float | None = None
    """When the run must end, on the clock; None for never."""
    clock: Callable[[], float] = time.monotonic
    calls: list[Call] = field(default_factory=list)

    def left_s(self) -> float | None:
        """Seconds until the run must end, or None.

        Raises:
            DeadlineExceeded: there are none left.
        """
        if self.deadline is None:
            return None
        left = self.deadline - self.clock()
        if left <= 0:
            raise DeadlineExceeded("the run's time is used up")
        return left

    def reply_limit(
        self, *, prompt_tokens: int, wanted: int | None, cost_usd: Callable[[int], Decimal | None]
    ) -> int | None:
        """The most tokens that the next reply may have; None for no limit.

        The limit is sent with the request, so that the endpoint itself keeps the budget: what a call may overspend
        is the error of the prompt's estimate, and a whole reply where an endpoint takes no limit. A call whose
        smallest reply uses the budget up exactly is still made.

        Args:
            prompt_tokens: tokens of the prompt.
            wanted: the limit that the settings ask for; None for none.
            cost_usd: what the call costs in USD with a reply of so many tokens; None where unknown.

        Raises:
            BudgetExhausted: not even a short reply could be paid for, or what it costs is unknown.
        """
        total = Usage.of(self.calls)
        limit = wanted
        least = min(SMALLEST_REPLY, wanted) if wanted else SMALLEST_REPLY
        if self.budget_tokens is not None:
            used = self.spent.tokens + total.tokens
            affordable = self.budget_tokens - used - prompt_tokens
            if affordable < least:
                raise BudgetExhausted(
                    f"budget of {self.budget_tokens} tokens: {used} spent, "
                    f"the next call needs {prompt_tokens} for its prompt and at least {least} for a reply"
                )
            if affordable < _UNLIMITED:
                limit = affordable if limit is None else min(limit, affordable)
        if self.budget_usd is not None:
            if self.spent.cost_usd is None or total.cost_usd is None or cost_usd(least) is None:
                raise BudgetExhausted(
                    f"a budget of {self.budget_usd} USD cannot be kept: the model's price is unknown; state it in "
                    "REFLEXION_PRICES, or set a budget in tokens"
                )
            used_usd = self.spent.cost_usd + total.cost_usd
            affordable = _affordable(self.budget_usd - used_usd, cost_usd)
            if affordable < least:
                raise BudgetExhausted(
                    f"budget of {self.budget_usd} USD: {used_usd:f} spent, "
                    f"the next call needs at least {cost_usd(least):f}"
                )
            if affordable < _UNLIMITED:
                limit = affordable if limit is None else min(limit, affordable)
        return limit


_UNLIMITED = 1_000_000
"""Tokens. No reply is that long, and endpoints refuse such a limit."""


def _affordable(left_usd: Decimal, cost_usd: Callable[[int], Decimal | None]) -> int:
    """Tokens of reply that fit into the money, by bisection: prices may be tiered."""
    low, high = -1, _UNLIMITED
    while low < high:
        middle = (low + high + 1) // 2
        cost = cost_usd(middle)
        if cost is not None and cost <= left_usd:
            low = middle
        else:
            high = middle - 1
    return low
