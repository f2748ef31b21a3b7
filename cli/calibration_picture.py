"""Draws a calibration: where the scores of right and wrong answers lie, and what each threshold would come to."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reflexion.graphs import ConfigurationError
from reflexion.graphs.calibrate import CalibrationReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
EDGES = [number / 20 for number in range(22)]
"""Of the histogram's bars; full marks have one of their own."""


def drawer(path: Path) -> Callable[[CalibrationReport], None]:
    """What draws a report into a file; asked for before anything is paid, so that nothing is paid for in vain.

    Raises:
        ConfigurationError: there is no Matplotlib, or no such file can be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigurationError(f"--picture {path}: name a file that ends in {' or '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"--picture {path}: there is no folder {path.parent}")
    try:
        import matplotlib.backends.backend_agg  # noqa: F401, PLC0415 - the extra may be missing
    except ImportError as error:
        raise ConfigurationError('--picture needs Matplotlib: pip install "reflexion-graph[report]"') from error

    def save(report: CalibrationReport) -> None:
        from matplotlib import rc_context  # noqa: PLC0415

        try:
            # Text stays text, and the file is the same for the same report.
            with rc_context({"svg.fonttype": "none", "svg.hashsalt": "reflexion"}):
                draw(report).savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise ConfigurationError(f"--picture {path}: cannot be written: {error}") from error

    return save


def draw(report: CalibrationReport) -> "Figure":
    """The picture, for any of Matplotlib's backends; grey hatching and line styles carry what colours would."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    scores, curves = figure.subplots(2, 1, sharex=True)
    _draw_scores(scores, report)
    _draw_curves(curves, report)
    return figure


def _draw_scores(axes: Any, report: CalibrationReport) -> None:
    right = [v.score for v in report.verdicts if v.truth and v.score is not None]
    wrong = [v.score for v in report.verdicts if not v.truth and v.score is not None]
    style = {"bins": EDGES, "edgecolor": "black", "linewidth": 0.8}
    axes.hist(
        [right, wrong],
        label=[f"right answers ({len(right)})", f"wrong answers ({len(wrong)})"],
        color=["white", "0.45"],
        **style,
    )
    axes.set_title(f"Judged by {', '.join(report.evaluators)}")
    axes.set_ylabel("answers")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="upper left")


def _draw_curves(axes: Any, report: CalibrationReport) -> None:
    found = report.calibration
    thresholds = [point.threshold for point in found.points]
    # A point's shares hold for the thresholds around it, up to where the next score lies.
    for values, label, line in (
        ([point.false_passes for point in found.points], "false passes: wrong answers that pass", "-"),
        ([point.false_failures for point in found.points], "false failures: right answers that fail", "--"),
    ):
        axes.plot(thresholds, [100 * value for value in values], line, color="black", marker=".", label=label)
    axes.axvline(found.threshold, color="0.5", linewidth=1, label=f"threshold {found.threshold:g}")
    if found.balanced:
        label = f"balanced at {found.balanced.threshold:g}"
        axes.axvline(found.balanced.threshold, color="black", linestyle=":", linewidth=2, label=label)
    axes.set_xlabel("score")
    axes.set_ylabel("% of them")
    axes.set_xlim(-0.02, 1.07)
    axes.set_ylim(-4, 104)
    axes.legend(loc="center left")
