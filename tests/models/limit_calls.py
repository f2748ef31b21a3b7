"""Exchanges for the tests of limits, and how they end."""

from typing import Any

from reflexion.models.exchange import Exchange
from reflexion.models.usage import Call


def exchange(run: str = "", *, tokens: int = 0, **fields: Any) -> Exchange:
    """A request to `m` that reserves so many tokens."""
    return Exchange(endpoint="http://one/v1", model="m", run_id=run, reply_tokens=tokens, **fields)


def line(tokens: int) -> Call:
    """The ledger line of a request that used so many tokens."""
    return Call(
        id="",
        role="actor",
        attempt=1,
        model="m",
        returned_model="m",
        prompt_tokens=0,
        completion_tokens=tokens,
        cached_tokens=0,
        reasoning_tokens=0,
        cost_usd=None,
        estimated=False,
        latency_s=0.0,
        first_token_s=None,
        outcome="ok",
    )


def most_over(sent: list[tuple[float, float]], per_s: float, burst: float) -> float:
    """How far the (time, amount)s exceed rate * time + burst in the worst window; below 0 where they never do.

    A single amount above the burst counts as the burst, as such a call goes once the bucket is full.
    """
    bound = max([burst, *(amount for _, amount in sent)])
    worst = -bound
    for first, (start, _) in enumerate(sent):
        total = 0.0
        for when, amount in sent[first:]:
            total += amount
            worst = max(worst, total - per_s * (when - start) - bound)
    return worst
