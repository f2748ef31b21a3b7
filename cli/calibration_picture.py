"""Draws a calibration: where the scores of right and wrong answers lie, and what each threshold would come to."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reflexion.graphs import ConfigurationError
from reflexion.graphs.calibration_report import CalibrationReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
EDGES = [number / 20 - 0.025 for number in range(22)]
"""Of the histogram's bars, which stand at 0, 0.05 … 1."""


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
    """The picture, for any of Matplotlib's backends; grey tones and line styles carry what colours would."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    scores, curves = figure.subplots(2, 1, sharex=True)
    _draw_scores(scores, report)
    _draw_curves(curves, report)
    for axes in (scores, curves):
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        axes.tick_params(labelbottom=True)
    return figure


def _draw_scores(axes: Any, report: CalibrationReport) -> None:
    right = [v.score for v in report.verdicts if v.truth and v.score is not None]
    wrong = [v.score for v in report.verdicts if not v.truth and v.score is not None]
    axes.hist(
        [right, wrong],
        bins=EDGES,
        label=[f"right answers ({len(right)})", f"wrong answers ({len(wrong)})"],
        color=["white", "0.45"],
        edgecolor="black",
        linewidth=0.8,
    )
    axes.set_xlabel(f"score given by {', '.join(report.evaluators)}")
    axes.set_ylabel("answers")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _draw_curves(axes: Any, report: CalibrationReport) -> None:
    found = report.calibration
    edges = [0.0, *(point.up_to for point in found.points)]
    for values, label, line in (
        ([point.false_passes for point in found.points], "false passes, % of the wrong answers", "-"),
        ([point.false_failures for point in found.points], "false failures, % of the right answers", "--"),
    ):
        if values:
            percent = [100 * value for value in values]
            axes.stairs(percent, edges, baseline=None, linestyle=line, color="black", linewidth=1.8, label=label)
    axes.axvline(found.threshold, color="0.5", linewidth=1.2, label=f"threshold {found.threshold:g}")
    if found.balanced:
        label = f"balanced at {found.balanced.threshold:g}"
        axes.axvline(found.balanced.threshold, color="black", linestyle=":", linewidth=2.2, label=label)
    axes.set_xlabel("threshold")
    axes.set_ylabel("%")
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-4, 104)
