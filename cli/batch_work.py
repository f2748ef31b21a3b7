"""`reflexion batch`: opens what it needs, works, and says how it ended."""

import asyncio
import importlib
import importlib.util
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack, aclosing, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from rich.console import Console

from reflexion.batch import Batch, BatchError, Engine, Progress, run_batch
from reflexion.batch.errors import OptionError
from reflexion.batch.stored import stored_records
from reflexion.batch.summary import Summary, summarize
from reflexion.cli.batch_progress import Display, tasks
from reflexion.cli.batch_request import Request
from reflexion.cli.batch_summary import other_prices, tell
from reflexion.cli.errors import one_line
from reflexion.cli.options import INTERRUPTED, NOT_PASSED, PASSED, UNREACHABLE, WRONG_USE
from reflexion.cli.view import Progress as RunProgress
from reflexion.graphs import ConfigurationError, open_reflexion
from reflexion.graphs.installation import Installation, read_installation
from reflexion.models import CONFIGURATION
from reflexion.nodes import Settings, make_settings

if TYPE_CHECKING:
    from langsmith import Client


_NAMES = {
    "budget_tokens": "--budget-tokens",
    "budget_usd": "--budget-usd",
    "concurrency": "--concurrency",
    "deadline_s": "--max-time",
}
"""How the command line calls options of `run_batch`."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the work ended."""

    progress: Progress
    interrupted: bool
    experiment: str = ""
    """Full name of the experiment that the results were sent to; empty for none."""


def work_on(request: Request) -> int:
    """Work on the batch, say what came of it, and return the exit code."""
    logging.getLogger("reflexion.batch").addHandler(logging.NullHandler())  # what it warns of is in the records
    request.check()
    others = other_prices(request)
    ended = asyncio.run(_work(request))
    if ended is None:
        print("reflexion: broken off before the batch began", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    if not (ended.progress.counts or ended.progress.stopped or ended.interrupted):
        raise BatchError(f"{request.dataset or request.tasks}: holds no tasks")
    found = summarize(request.out, others)
    tell(request, found, ended.progress, interrupted=ended.interrupted, experiment=ended.experiment)
    if not request.quiet and (words := _what_next(request, found, ended)):
        print(f"reflexion: {words}", file=sys.stderr)  # noqa: T201
    return exit_code(found, ended.progress, interrupted=ended.interrupted)


def exit_code(found: Summary, progress: Progress, *, interrupted: bool) -> int:
    """0 all passed, 1 not all, 2 the settings let no task run, 3 no model could be reached, 130 interrupted."""
    if interrupted:
        return INTERRUPTED
    if found.statuses["passed"] == found.tasks:
        return PASSED
    ran = sum(found.statuses[status] for status in ("passed", "failed", "unscored"))
    if ran:
        return NOT_PASSED
    kinds = set(found.failures)
    if progress.stopped_by in {"refused", "unreachable"}:
        return WRONG_USE if progress.stopped_by == "refused" else UNREACHABLE
    if kinds and kinds <= CONFIGURATION:
        return WRONG_USE
    return UNREACHABLE if kinds and "" not in kinds and set(found.stop_reasons) == {"model_error"} else NOT_PASSED


def _what_next(request: Request, found: Summary, ended: Ended) -> str:
    progress = ended.progress
    finished = found.tasks - found.statuses["not_run"]
    failed = finished - found.statuses["passed"] - progress.bad_lines
    again = f"; --retry-failed runs the {failed:,} again that did not pass" if failed else ""
    if progress.bad_lines:
        again += f"; no task is in {progress.bad_lines:,} of the lines: mend them and run it again"
    if ended.interrupted:
        return f"broken off with {tasks(finished)} finished; the same command goes on"
    if progress.stopped:
        more = " when it is given more" if progress.stopped_by == "budget" else ""
        return f"{one_line(progress.stopped)}; the same command goes on{more}{again}"
    if not progress.ran:
        return f"nothing to do, all is finished: {tasks(found.tasks)} in {request.out}{again}"
    return f"results are in {request.out}{again}"


async def _work(request: Request) -> Ended | None:
    installation = read_installation(**request.installation)
    settings = make_settings(**request.settings)
    display = Display(Console(stderr=True), shown=not request.quiet)
    async with AsyncExitStack() as stack:
        client = _langsmith(stack) if request.dataset else None
        source = request.source() if client is None else await _examples(client, request.dataset or "", stack)
        engine = await _open(request, settings, installation, display, stack)
        try:
            batch = run_batch(source, engine, out=request.out, listener=display.tell, **request.options)
        except OptionError as error:
            raise BatchError(f"{_NAMES.get(error.option, error.option)} {error.fault}") from None
        async with display.watching(batch):
            interrupted = await _run(batch, display)
        if not display.begun.is_set():
            return None
        progress, experiment = await batch.progress(), ""
        if client is not None and request.experiment and not interrupted:
            experiment = await asyncio.to_thread(_send, client, request, progress.batch_id)
        return Ended(progress=progress, interrupted=interrupted, experiment=experiment)


async def _run(batch: Batch, display: Display) -> bool:
    """Work on it to its end; returns whether it was interrupted, which breaks it off in good order."""

    interrupted = False

    async def work() -> None:
        async with aclosing(aiter(batch)) as records:
            async for _ in records:
                pass

    def end(*_: Any) -> None:
        display.close()
        os._exit(INTERRUPTED)  # whatever is half done can be gone on with, as after a crash

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        for number in _INTERRUPTS:
            loop.remove_signal_handler(number)
            signal.signal(number, end)  # works even where the loop does not any more
        display.note = "breaking off; once more ends it at once"
        display.say(display.note, "yellow")
        working.cancel()

    loop, working = asyncio.get_running_loop(), asyncio.create_task(work())
    with suppress(NotImplementedError):  # on Windows an interrupt ends the program at once
        for number in _INTERRUPTS:
            loop.add_signal_handler(number, interrupt)
    try:
        await working
    except asyncio.CancelledError:
        if not interrupted:
            raise
    return interrupted


async def _open(
    request: Request, settings: Settings, installation: Installation, display: Display, stack: AsyncExitStack
) -> Any:
    """An open agent, or another engine."""
    if request.engine == "temporal":
        return _temporal(settings, installation)
    agent = await stack.enter_async_context(
        open_reflexion(
            settings,
            connection=installation,
            database_url=installation.database_url,
            prompts=installation.prompts,
        )
    )
    chosen = bool(installation.base_url or settings.model)
    RunProgress(display.console, shown=not request.quiet, live=False).notice(agent, chosen=chosen)
    return agent


def _temporal(settings: Settings, installation: Installation) -> Engine:
    if importlib.util.find_spec("temporalio") is None:
        raise ConfigurationError("--engine temporal: needs the extra temporal: install reflexion-graph[temporal]")
    module = importlib.import_module("reflexion.batch.temporal")
    engine: Engine = module.TemporalEngine(settings, installation=installation)
    return engine


def _langsmith(stack: AsyncExitStack) -> "Client":
    from langsmith import Client  # noqa: PLC0415 - slow to import

    if not os.environ.get("LANGSMITH_API_KEY", "").strip():
        raise ConfigurationError("--dataset: needs LangSmith: set LANGSMITH_API_KEY")
    client = Client()
    stack.callback(client.close)
    return client


async def _examples(client: "Client", dataset: str, stack: AsyncExitStack) -> BinaryIO:
    from reflexion.batch.dataset import dataset_tasks  # noqa: PLC0415

    return stack.enter_context(closing(await asyncio.to_thread(dataset_tasks, client, dataset)))


def _send(client: "Client", request: Request, batch_id: str) -> str:
    from reflexion.batch.dataset import upload_experiment  # noqa: PLC0415

    records = stored_records(request.out)
    name, _ = upload_experiment(client, request.dataset or "", request.experiment or "", batch_id, records)
    return name
