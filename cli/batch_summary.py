"""The summary of a batch, for people and as JSON."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reflexion.batch import STATUSES, BatchError, Progress
from reflexion.batch.summary import Summary, each, each_usd, summarize
from reflexion.cli.batch_progress import clock, tasks
from reflexion.cli.batch_request import Request
from reflexion.cli.errors import one_line
from reflexion.cli.options import NOT_PASSED, PASSED
from reflexion.graphs.installation import read_installation
from reflexion.models import PROFILES
from reflexion.models.intervals import Rate
from reflexion.models.prices import Priced, Prices, display_usd
from reflexion.models.statistics import Percentiles
from reflexion.models.usage import decimal_text

_MOST_GROUPS = 10
"""Kinds of errors that people are shown."""
_LONGEST = 160


def tell_summary(request: Request) -> int:
    """Say what a file of results holds; returns the exit code."""
    if request.tasks or request.dataset or request.experiment:
        raise BatchError("--summary: runs nothing: give --out alone")
    found = summarize(request.out, other_prices(request))
    tell(request, found)
    return PASSED if found.statuses["passed"] == found.tasks else NOT_PASSED


def other_prices(request: Request) -> dict[str, Priced]:
    """The prices of `--what-if`: a profile's, one that is stated in the settings, or that of the model's provider."""
    stated = Prices(read_installation(**request.installation).prices)
    return {
        name: PROFILES[name].price if name in PROFILES and not stated.states(name) else stated.at(name, None)
        for name in request.what_if
    }


def tell(
    request: Request,
    found: Summary,
    progress: Progress | None = None,
    *,
    interrupted: bool = False,
    experiment: str = "",
) -> None:
    """Print a summary on stdout, with what this process did where it did anything."""
    if request.as_json:
        about = {} if progress is None else _about(progress, interrupted=interrupted, experiment=experiment)
        print(json.dumps({"out": str(request.out), **about, **found.as_json()}, ensure_ascii=False, indent=2))  # noqa: T201
    elif not request.quiet:
        console = Console()
        print_summary(found, console)
        if progress is not None:
            _say(console, f"this process ran {tasks(progress.ran)} in {clock(progress.elapsed_s)}; {_spent(progress)}")
        if experiment:
            _say(console, f"sent to LangSmith as experiment {experiment}")


def _about(progress: Progress, *, interrupted: bool, experiment: str) -> dict[str, Any]:
    spent = progress.spent
    cost = None if spent.cost_usd is None else decimal_text(spent.cost_usd)
    return {
        "batch_id": progress.batch_id,
        "complete": not interrupted and not progress.stopped,
        "interrupted": interrupted,
        "stopped": progress.stopped,
        "ran": progress.ran,
        "elapsed_s": round(progress.elapsed_s, 3),
        "spent": {"requests": spent.requests, "tokens": spent.tokens, "cost_usd": cost},
        "experiment": experiment,
    }


def _spent(progress: Progress) -> str:
    spent = progress.spent
    return (
        f"spent on the batch so far, with what was broken off: {spent.requests:,} requests, {spent.tokens:,} tokens, "
        f"{_cost(spent.cost_usd)}"
    )


def print_summary(found: Summary, console: Console) -> None:
    """Print it in tables and sentences."""
    counts = ", ".join(f"{found.statuses[status]:,} {status.replace('_', ' ')}" for status in STATUSES)
    _say(console, f"{tasks(found.tasks)}: {counts}")
    if found.by_attempt:
        _print(console, _attempts(found))
        _say(console, _does_it_pay(found))
    if found.advisory:
        _say(console, f"{found.advisory:,} verdicts are a model's opinion: give tests or expect for grounded ones")
    if found.usage.requests:
        _print(console, _times(found))
        _print(console, _usage(found))
        each_passed = each(found.usage.tokens, found.passed)
        if each_passed is not None:
            cost = each_usd(found.usage.cost_usd, found.passed)
            _say(console, f"per passed task: {each_passed:,.0f} tokens, {_cost(cost)}")
        others = ", ".join(f"{name} {display_usd(cost)}" for name, cost in found.what_if_usd.items())
        _say(console, f"the same tokens elsewhere: {others}")
    if found.stop_reasons:
        _say(console, f"stop reasons: {', '.join(f'{name} ({count:,})' for name, count in found.stop_reasons.items())}")
    for title, groups in (("not run", found.not_run), ("no verdict", found.errors)):
        for group in groups[:_MOST_GROUPS]:
            _say(console, f"{title}, {group.count:,} from {group.first_id}: {one_line(group.said)[:_LONGEST]}")
        if len(groups) > _MOST_GROUPS:
            _say(console, f"{title}: and {len(groups) - _MOST_GROUPS:,} more kinds")


def _say(console: Console, text: str) -> None:
    console.print(Text(text), highlight=False, soft_wrap=True)


def _print(console: Console, table: Table) -> None:
    console.print()
    console.print(table)
    console.print()


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left")
    return table


def _attempts(found: Summary) -> Table:
    table = _table("passed by", "tasks", "of those with a verdict", "95 % interval")
    for number, rate in enumerate(found.by_attempt, start=1):
        table.add_row(f"attempt {number}", f"{rate.count:,}", _percent(rate.value), _interval(rate))
    return table


def _does_it_pay(found: Summary) -> str:
    reflecting = found.reflecting
    gained, usage = reflecting.gained, reflecting.usage
    if not gained.of:
        return "reflecting: nothing to gain, all were passed at the first attempt"
    if len(found.by_attempt) < 2:
        return "reflecting: no task had a second attempt"
    share = usage.tokens / found.usage.tokens if found.usage.tokens else 0.0
    took = f"it took {usage.tokens:,} tokens ({100 * share:.0f} % of all) and {_cost(usage.cost_usd)}"
    if not gained.count:
        return f"reflecting: brought nothing: none of {gained.of:,} that failed at first passed later; {took}"
    tokens, cost = each(usage.tokens, gained.count), each_usd(usage.cost_usd, gained.count)
    return (
        f"reflecting: {gained.count:,} of {gained.of:,} that failed at first passed later ({_percent(gained.value)}, "
        f"{_interval(gained)}); {took}: {tokens:,.0f} tokens and {_cost(cost)} for each of them"
    )


def _times(found: Summary) -> Table:
    table = _table("time", "p50", "p95", "p99")
    table.add_row("a task, s", *_points(found.duration_s, 1))
    table.add_row("a request, ms", *_points(found.latency_ms, 0))
    for role, latency in found.latency_ms_by_role.items():
        table.add_row(f"  {role}", *_points(latency, 0))
    return table


def _points(found: Percentiles, digits: int) -> Iterable[str]:
    return ("–" if value is None else f"{value:,.{digits}f}" for value in (found.p50, found.p95, found.p99))


def _usage(found: Summary) -> Table:
    table = _table("used by", "requests", "prompt", "cached", "completion", "reasoning", "cost")
    parts: Mapping[str, Any] = {**found.usage_by_role, "all": found.usage}
    for name, used in parts.items():
        numbers = (
            used.requests,
            used.prompt_tokens,
            used.cached_tokens,
            used.completion_tokens,
            used.reasoning_tokens,
        )
        estimated = " (estimated)" if used.estimated else ""
        table.add_row(name, *(f"{number:,}" for number in numbers), display_usd(used.cost_usd) + estimated)
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _interval(rate: Rate) -> str:
    return f"{100 * rate.low:.0f} – {100 * rate.high:.0f} %"


def _cost(cost: Any) -> str:
    return "at unknown cost" if cost is None else display_usd(cost)
