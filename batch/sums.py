"""Adds up what runs used, as their records tell it."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from reflexion.models import Usage
from reflexion.models.prices import Priced


class UsageSum:
    """A sum of `Usage.as_json()`; the cost is unknown as soon as one is."""

    def __init__(self) -> None:
        self._numbers = dict.fromkeys(
            ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens"), 0
        )
        self._cost: Decimal | None = Decimal(0)
        self._estimated = False

    def add(self, usage: Mapping[str, Any]) -> None:
        """Add what one run used."""
        for name in self._numbers:
            self._numbers[name] += usage[name]
        cost = usage["cost_usd"]
        self._cost = None if cost is None or self._cost is None else self._cost + Decimal(cost)
        self._estimated = self._estimated or usage["estimated"]

    def total(self) -> Usage:
        """The sum."""
        return Usage(**self._numbers, cost_usd=self._cost, estimated=self._estimated)


def cost_at(usage: Usage, price: Priced) -> Decimal | None:
    """What so many tokens cost at a price, in USD; None where it is unknown.

    They were of many requests, and some prices go by the size of one, so each is taken for the average one.
    """
    if not usage.requests:
        return price.cost_usd(prompt_tokens=0, completion_tokens=0)
    many = usage.requests
    average = price.cost_usd(
        prompt_tokens=round(usage.prompt_tokens / many),
        completion_tokens=round(usage.completion_tokens / many),
        cached_tokens=round(usage.cached_tokens / many),
        reasoning_tokens=round(usage.reasoning_tokens / many),
    )
    return None if average is None else average * many
