"""What a batch came to, added up over its records one at a time."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from reflexion.batch.records import STATUSES, Status
from reflexion.batch.stored import stored_records
from reflexion.batch.sums import UsageSum, cost_at
from reflexion.models import PROFILES, Usage
from reflexion.models.intervals import Rate
from reflexion.models.prices import Priced
from reflexion.models.statistics import Percentiles
from reflexion.models.usage import decimal_text

_MOST_GROUPS = 1000
"""Kinds that are told apart; what comes beyond them counts as others."""
_OTHERS = "others"
_LONGEST = 300
"""Characters that are kept of a text."""
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-f]{8,}\b|\d+(?:[.,:]\d+)*")
"""What differs between errors of one kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Tasks for which the same was said, but for numbers and names."""

    said: str
    """Of the first of them."""
    count: int
    first_id: str

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflecting:
    """What trying again has brought, and what it took. Of the tasks with a verdict."""

    first: Rate
    """Passed at the first attempt."""
    final: Rate
    """Passed in the end."""
    gained: Rate
    """Of those that were not passed at first, how many were later."""
    usage: Usage
    """Of what came after the first attempts: reflections, plans, further attempts."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        rates = {name: getattr(self, name).as_json() for name in ("first", "final", "gained")}
        return rates | {
            "usage": self.usage.as_json(),
            "tokens_per_gained": each(self.usage.tokens, self.gained.count),
            "cost_usd_per_gained": money(each_usd(self.usage.cost_usd, self.gained.count)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the records of a batch say."""

    tasks: int
    statuses: Mapping[Status, int]
    advisory: int
    """Verdicts that rest on what a model thinks, and on nothing that a person gave."""
    by_attempt: Sequence[Rate]
    """Of the tasks with a verdict, how many were passed by the first attempt, by the second, …"""
    reflecting: Reflecting
    duration_s: Percentiles
    """Of tasks."""
    latency_ms: Percentiles
    """Of requests that were answered; by what each task says of each role, which is exact for up to two of them and
    never too low."""
    latency_ms_by_role: Mapping[str, Percentiles]
    usage: Usage
    """Of the runs whose records these are."""
    usage_by_role: Mapping[str, Usage]
    usage_by_model: Mapping[str, Usage]
    stop_reasons: Mapping[str, int]
    errors: Sequence[Group]
    """Why there is no verdict; the most frequent first."""
    not_run: Sequence[Group]
    """Why not."""
    failures: Mapping[str, int]
    """Tasks in `error` by the kind of their failure; empty for those that had none."""
    what_if_usd: Mapping[str, Decimal | None]
    """What the same tokens would have cost on other models, in USD; None where a price is unknown."""

    @property
    def passed(self) -> int:
        """Tasks."""
        return self.statuses["passed"]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; money as decimal strings, None where it is unknown."""
        return {
            "tasks": self.tasks,
            "statuses": dict(self.statuses),
            "advisory": self.advisory,
            "by_attempt": [{"attempt": n, **rate.as_json()} for n, rate in enumerate(self.by_attempt, start=1)],
            "reflecting": self.reflecting.as_json(),
            "duration_s": self.duration_s.as_json(),
            "latency_ms": self.latency_ms.as_json(),
            "latency_ms_by_role": {role: found.as_json() for role, found in self.latency_ms_by_role.items()},
            "usage": {
                **self.usage.as_json(),
                "by_role": {role: usage.as_json() for role, usage in self.usage_by_role.items()},
                "by_model": {model: usage.as_json() for model, usage in self.usage_by_model.items()},
            },
            "tokens_per_passed": each(self.usage.tokens, self.passed),
            "cost_usd_per_passed": money(each_usd(self.usage.cost_usd, self.passed)),
            "stop_reasons": dict(self.stop_reasons),
            "errors": [group.as_json() for group in self.errors],
            "not_run": [group.as_json() for group in self.not_run],
            "what_if_usd": {model: money(cost) for model, cost in self.what_if_usd.items()},
        }


def summarize(records: Path | Iterable[Mapping[str, Any]], others: Mapping[str, Priced] | None = None) -> Summary:
    """Add records up.

    Args:
        records: the file that `run_batch` wrote, or `Record.as_json()` of each.
        others: prices to compare with, besides those of `PROFILES`: `Prices.at(model, None)`, say.

    Raises:
        BatchError: the file cannot be read, or is none of a batch.
    """
    tally = _Tally()
    for record in stored_records(records) if isinstance(records, Path) else records:
        tally.add(record)
    return tally.summary(others or {})


class _Groups:
    """Counts texts that differ in numbers and names alone as one."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, tuple[str, str]] = {}

    def add(self, said: str, name: str) -> None:
        """Count what was said of a task."""
        kind = _VARIABLE.sub("…", said)[:_LONGEST]
        if kind not in self._first and len(self._first) >= _MOST_GROUPS:
            kind, said = _OTHERS, _OTHERS
        self._counts[kind] += 1
        self._first.setdefault(kind, (said if len(said) <= _LONGEST else said[:_LONGEST] + "…", name))

    def found(self) -> list[Group]:
        """The groups, the largest first."""
        first = self._first
        return [Group(said=first[k][0], count=n, first_id=first[k][1]) for k, n in self._counts.most_common()]


class _Tally:
    """The sums so far. Grows by a few numbers a task, for the percentiles."""

    def __init__(self) -> None:
        self._statuses: Counter[Status] = Counter(dict.fromkeys(STATUSES, 0))
        self._stop_reasons: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._errors, self._not_run = _Groups(), _Groups()
        self._advisory = 0
        self._passed_at: Counter[int] = Counter()
        self._most_attempts = 0
        self._durations = array("d")
        self._latencies: dict[str, array[float]] = {}
        self._usage, self._after_first = UsageSum(), UsageSum()
        self._by_role: dict[str, UsageSum] = {}
        self._by_model: dict[str, UsageSum] = {}
        self._what_if: dict[str, Decimal | None] = dict.fromkeys(PROFILES, Decimal(0))

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record."""
        status: Status = record["status"]
        self._statuses[status] += 1
        if status == "not_run":
            self._not_run.add(record["error"], record["id"])
        elif record["error"]:
            self._errors.add(record["error"], record["id"])
        if status == "error":
            self._failures[(record.get("failure") or {}).get("kind", "")] += 1
        if record["stop_reason"] and status != "not_run":
            self._stop_reasons[record["stop_reason"]] += 1
        if status in {"passed", "failed"}:
            self._add_verdict(record)
        if record["stop_reason"]:
            self._add_use(record)

    def _add_verdict(self, record: Mapping[str, Any]) -> None:
        attempts = record["attempts"]
        self._advisory += bool(record.get("advisory"))
        self._most_attempts = max(self._most_attempts, len(attempts))
        if record["status"] == "passed":
            self._passed_at[next((a["number"] for a in attempts if a["passed"]), len(attempts))] += 1

    def _add_use(self, record: Mapping[str, Any]) -> None:
        usage = record["usage"]
        self._usage.add(usage)
        self._after_first.add(usage["after_first"])
        for sums, part in ((self._by_role, usage["by_role"]), (self._by_model, usage["by_model"])):
            for name, used in part.items():
                sums.setdefault(name, UsageSum()).add(used)
        for name, total in self._what_if.items():
            cost = record["what_if_usd"].get(name)
            self._what_if[name] = None if cost is None or total is None else total + Decimal(cost)
        self._durations.append(record["duration_s"])
        for role, found in record["statistics"].items():
            answered = found["requests"] - sum(found["failures"].values())
            self._latencies.setdefault(role, array("d")).extend(_as_values(found["latency_ms"], answered))

    def summary(self, others: Mapping[str, Priced]) -> Summary:
        """What they come to."""
        usage = self._usage.total()
        judged = self._statuses["passed"] + self._statuses["failed"]
        cumulative = [
            Rate(sum(count for at, count in self._passed_at.items() if at <= number), judged)
            for number in range(1, self._most_attempts + 1)
        ]
        first = cumulative[0] if cumulative else Rate(0, judged)
        final = Rate(self._statuses["passed"], judged)
        return Summary(
            tasks=sum(self._statuses.values()),
            statuses=self._statuses,
            advisory=self._advisory,
            by_attempt=cumulative,
            reflecting=Reflecting(
                first=first,
                final=final,
                gained=Rate(final.count - first.count, judged - first.count),
                usage=self._after_first.total(),
            ),
            duration_s=Percentiles.of(self._durations),
            latency_ms=Percentiles.of(value for values in self._latencies.values() for value in values),
            latency_ms_by_role={role: Percentiles.of(values) for role, values in self._latencies.items()},
            usage=usage,
            usage_by_role={role: found.total() for role, found in self._by_role.items()},
            usage_by_model={model: found.total() for model, found in self._by_model.items()},
            stop_reasons=dict(self._stop_reasons.most_common()),
            errors=self._errors.found(),
            not_run=self._not_run.found(),
            failures=dict(self._failures),
            what_if_usd=self._what_if | {name: cost_at(usage, price) for name, price in others.items()},
        )


def _as_values(percentiles: Mapping[str, float | None], count: int) -> list[float]:
    """As many values as there were, each the next higher one that is known; exact for one and two."""
    p50, p95, p99 = percentiles["p50"], percentiles["p95"], percentiles["p99"]
    if p50 is None or p95 is None or p99 is None:
        return []
    half, most = -(-count // 2), -(-95 * count // 100)
    return [p50] * half + [p95] * (most - half) + [p99] * (count - most)


def each(total: int, count: int) -> float | None:
    """How much for each; None for none."""
    return round(total / count, 1) if count else None


def each_usd(total: Decimal | None, count: int) -> Decimal | None:
    """The same for money, which may be unknown."""
    return None if total is None or not count else (total / count).quantize(Decimal("1e-8"))


def money(cost: Decimal | None) -> str | None:
    """As JSON: a decimal string; None where it is unknown."""
    return None if cost is None else decimal_text(cost)
