"""How fast and how reliable a model was, read from ledger lines."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reflexion.models.ledger import PENDING, Group, LedgerLine, grouped
from reflexion.models.usage import CACHED, NOT_SENT, Call

OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Three points of a distribution; None where there are no values."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Percentiles":
        """The percentiles of values, in their unit."""
        ordered = sorted(values)
        if not ordered:
            return cls()
        return cls(p50=nearest_rank(ordered, 50), p95=nearest_rank(ordered, 95), p99=nearest_rank(ordered, 99))

    def as_json(self) -> dict[str, float | None]:
        """Plain JSON."""
        return {"p50": self.p50, "p95": self.p95, "p99": self.p99}


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile of sorted values: the one at rank ⌈percent / 100 · N⌉, counted from 1.

    Always a value that was measured, never one in between (Hyndman and Fan, "Sample Quantiles in Statistical
    Packages", 1996, definition 1). Of fewer than 100 values the 99th percentile is the largest.
    """
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(rank, 1) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a set of ledger lines says."""

    requests: int = 0
    """All that were sent and have ended."""
    cached: int = 0
    """Answers from the cache, which are in no other figure."""
    failures: dict[str, int] = field(default_factory=dict)
    """Requests by outcome, without `ok`."""
    latency_ms: Percentiles = field(default_factory=Percentiles)
    """Milliseconds from sending to the whole reply, of requests that got one."""
    first_token_ms: Percentiles = field(default_factory=Percentiles)
    """Milliseconds from sending to the first token, of streamed replies."""
    tokens_per_second: float | None = None
    """Reply tokens of all replies by the seconds that all replies took, the wait for the first token included."""

    @classmethod
    def of(cls, lines: Iterable[Call]) -> "Statistics":
        """Statistics over lines; those in flight are left out."""
        given = list(lines)
        ended = [line for line in given if line["outcome"] not in NOT_SENT | {PENDING}]
        answered = [line for line in ended if line["outcome"] == OK]
        seconds = sum(line["latency_s"] for line in answered)
        tokens = sum(line["completion_tokens"] for line in answered)
        firsts = (line["first_token_s"] for line in answered)
        return cls(
            requests=len(ended),
            cached=sum(line["outcome"] == CACHED for line in given),
            failures=dict(Counter(line["outcome"] for line in ended if line["outcome"] != OK)),
            latency_ms=Percentiles.of(_ms(line["latency_s"]) for line in answered),
            first_token_ms=Percentiles.of(_ms(first) for first in firsts if first is not None),
            tokens_per_second=round(tokens / seconds, 1) if seconds else None,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "requests": self.requests,
            "cached": self.cached,
            "failures": self.failures,
            "latency_ms": self.latency_ms.as_json(),
            "first_token_ms": self.first_token_ms.as_json(),
            "tokens_per_second": self.tokens_per_second,
        }


def statistics(lines: Iterable[LedgerLine], by: Group) -> dict[str, Statistics]:
    """Statistics by role, model, run, thread or batch."""
    return {name: Statistics.of(group) for name, group in grouped(lines, by).items()}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
