"""What a calibration looks like in a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reflexion.cli.view import cost_text
from reflexion.evaluators.calibration import Calibration, ThresholdPoint
from reflexion.graphs.calibration_report import CalibrationReport
from reflexion.models.intervals import Estimate, Rate


def print_calibration(report: CalibrationReport, console: Console) -> None:
    """Print the shares, the thresholds, the reliability table, and what to make of them."""
    found = report.calibration
    by = ", ".join(f"{name} ({count})" for name, count in report.evaluators.items())
    right, wrong = found.false_failures.of, found.false_passes.of
    _say(console, f"{right} right and {wrong} wrong answers; judged by {by}; threshold {found.threshold:g}")
    for table in (_shares(found), _thresholds(found), _reliability(found)):
        console.print()
        console.print(table)
    console.print()
    for note in report.notes:
        _say(console, f"! {note}")
    usage = report.usage.as_json()
    estimated = " (partly estimated)" if usage["estimated"] else ""
    reused = f", {report.reused} verdicts reused" if report.reused else ""
    _say(
        console,
        f"{usage['requests']} requests, {report.usage.tokens:,} tokens{estimated}, {cost_text(usage['cost_usd'])}, "
        f"{report.duration_s:.1f} s{reused}",
    )


def _say(console: Console, text: str) -> None:
    console.print(Text(text), highlight=False, soft_wrap=True)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _shares(found: Calibration) -> Table:
    table = _table("", "share", "count", "95 % interval")
    rates = {
        "false passes": found.false_passes,
        "false failures": found.false_failures,
        "true verdicts": found.accuracy,
        "no verdict": found.no_verdict,
    }
    for name, rate in rates.items():
        table.add_row(name, _percent(rate.value), f"{rate.count} of {rate.of}", _interval(rate))
    if found.gain:
        table.add_row("right pass more often by", f"{100 * found.gain.value:.0f} points", "", _points(found.gain))
    if found.auc:
        auc = found.auc
        table.add_row("right above wrong (AUC)", f"{auc.value:.2f}", "", f"{auc.low:.2f} – {auc.high:.2f}")
    return table


MOST_THRESHOLDS = 12
"""Rows that are shown; of more, those that hold at 0, 0.1 … 1 and the balanced one."""


def _thresholds(found: Calibration) -> Table:
    table = _table("threshold", "false passes", "false failures", "")
    for point in found.points:
        mark = "balanced" if point == found.balanced else ""
        if mark or len(found.points) <= MOST_THRESHOLDS or point in _at_tenths(found.points):
            table.add_row(f"{point.threshold:g}", _percent(point.false_passes), _percent(point.false_failures), mark)
    return table


def _at_tenths(points: Sequence[ThresholdPoint]) -> list[ThresholdPoint]:
    return [next((point for point in points if tenth / 10 <= point.up_to), points[-1]) for tenth in range(11)]


def _reliability(found: Calibration) -> Table:
    table = _table("score", "answers", "mean score", "right", "95 % interval")
    for row in found.reliability:
        scores = f"{row.low:g}" if row.low == row.high else f"{row.low:g} to {row.high:g}"
        right = row.right
        table.add_row(scores, str(right.of), f"{row.mean_score:.2f}", _percent(right.value), _interval(right))
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _interval(rate: Rate) -> str:
    return f"{100 * rate.low:.0f} – {100 * rate.high:.0f} %"


def _points(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.0f} – {100 * estimate.high:.0f} points"
