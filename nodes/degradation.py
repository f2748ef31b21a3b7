"""What a run gives up when its money runs short, in a stated order."""

from collections.abc import Callable
from dataclasses import dataclass

from reflexion.models import Amount, Usage
from reflexion.nodes.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """How a run saves."""

    cheaper_model: bool = False
    """Ask `Settings.cheaper_model`, where there is one, instead of each role's own."""

    no_planner: bool = False
    """Go from the reflection to the next attempt without a plan."""

    no_further_attempt: bool = False
    """End the run after the attempt that is being made."""


Degradation = Callable[[float], Measures]
"""A policy: from the share of the budget that is left (0..1) to what is given up."""


def in_order(left: float) -> Measures:
    """The standard policy: below a half the cheaper model, below a quarter no plan, below a tenth no new attempt."""
    return Measures(cheaper_model=left < 0.5, no_planner=left < 0.25, no_further_attempt=left < 0.1)


def share_left(usage: Usage, settings: Settings) -> float:
    """The share of the run's budget that is left, 0..1: of dollars, tokens or requests, whichever is shortest."""
    limit = Amount(usd=settings.budget_usd, tokens=settings.budget_tokens, requests=settings.budget_requests)
    used = Amount(usd=usage.cost_usd, tokens=usage.tokens, requests=usage.requests)
    return limit.share(limit.without(used))
