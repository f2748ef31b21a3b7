"""`reflexion calibrate`."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reflexion.cli.calibration_view import print_calibration
from reflexion.cli.errors import one_line
from reflexion.cli.options import INTERRUPTED, NOT_PASSED, PASSED, UNREACHABLE, WRONG_USE
from reflexion.graphs.calibrate import calibrate
from reflexion.graphs.calibration_report import CalibrationReport, FailedExample
from reflexion.graphs.installation import read_installation
from reflexion.graphs.labelled import Example, read_examples
from reflexion.graphs.verdict_file import Verdict
from reflexion.nodes import make_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    file: Path
    limit: int | None
    concurrency: int
    out: Path | None
    picture: Path | None
    settings: dict[str, Any]
    installation: dict[str, Any]
    as_json: bool


def calibrate_file(request: Request) -> int:
    """Calibrate, print what came of it, and return the exit code."""
    save: Callable[[CalibrationReport], None] | None = None
    if request.picture is not None:
        from reflexion.cli.calibration_picture import drawer  # noqa: PLC0415 - Matplotlib takes a second to import

        save = drawer(request.picture)
    examples = read_examples(request.file, request.limit)
    report = asyncio.run(_calibrate(request, examples))
    if request.as_json:
        print(json.dumps(report.as_json(), ensure_ascii=False, indent=2))  # noqa: T201
    elif not report.verdicts:
        print(f"reflexion: nothing was measured: {one_line(_reason(report))}", file=sys.stderr)  # noqa: T201
    else:
        print_calibration(report, Console())
    if save is not None and report.verdicts:
        save(report)
    return exit_code(report)


def exit_code(report: CalibrationReport) -> int:
    """0 measured, 1 not all or nothing of it, 2 the settings are wrong, 3 no model could be asked, 130 interrupted."""
    if report.stop_reason == "cancelled":
        return INTERRUPTED
    if report.misconfigured:
        return WRONG_USE
    if report.stop_reason in {"budget", "deadline"}:
        return NOT_PASSED
    if report.stop_reason == "model_error" or not report.verdicts:
        return UNREACHABLE
    return PASSED if report.calibration.accuracy.of else NOT_PASSED


def _reason(report: CalibrationReport) -> str:
    return report.stop_detail or report.failed[0].error


async def _calibrate(request: Request, examples: list[Example]) -> CalibrationReport:
    installation = read_installation(**request.installation)
    stop = asyncio.Event()
    _set_on_interrupt(stop)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("judging", total=len(examples))

        def show(found: Verdict | FailedExample) -> None:
            if isinstance(found, FailedExample):
                console.print(f"{found.id}: {one_line(found.error)}", markup=False, highlight=False, soft_wrap=True)
            progress.advance(bar)

        return await calibrate(
            examples,
            make_settings(**request.settings),
            connection=installation,
            database_url=installation.database_url,
            prompts=installation.prompts,
            concurrency=request.concurrency,
            out=request.out,
            on_verdict=show,
            stop=stop,
        )


def _set_on_interrupt(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # a second one ends the program at once
        stop.set()

    with suppress(NotImplementedError):  # on Windows an interrupt ends the program at once
        loop.add_signal_handler(signal.SIGINT, interrupted)
