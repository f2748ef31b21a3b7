"""`reflexion worker`."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from reflexion.cli.options import INTERRUPTED, PASSED
from reflexion.graphs import ConfigurationError
from reflexion.graphs.installation import read_installation
from reflexion.nodes import make_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    place: dict[str, Any]
    installation: dict[str, Any]
    concurrency: int
    drain_s: float


def run_worker(request: Request) -> int:
    """Work until SIGTERM or an interrupt; returns the exit code."""
    try:
        from reflexion.batch.temporal import place  # noqa: PLC0415 - the extra may be missing
    except ImportError as error:
        raise ConfigurationError(str(error)) from None
    return asyncio.run(_work(request, place.read_place(**request.place)))


async def _work(request: Request, place: Any) -> int:
    from reflexion.batch.temporal.engine import database_of, open_shared  # noqa: PLC0415
    from reflexion.batch.temporal.place import connect  # noqa: PLC0415
    from reflexion.batch.temporal.worker import work  # noqa: PLC0415

    installation = read_installation(**request.installation)
    url = database_of(installation)
    stop = asyncio.Event()
    _stop_on_signal(stop)
    async with open_shared(make_settings(), installation) as agent:
        client = await connect(place)
        tell(f"takes tasks from {place.task_queue!r} at {place.address}, {request.concurrency} at once")
        await work(
            agent,
            url,
            client,
            place,
            concurrency=request.concurrency,
            stop=stop,
            drain_s=request.drain_s,
            tell=tell,
        )
    tell("has ended")
    return PASSED


def _stop_on_signal(stop: asyncio.Event) -> None:
    """The first SIGTERM or interrupt hands back what is at work; the second ends the process at once."""

    def signalled() -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)  # what is half done goes on elsewhere, as after a crash
        tell("hands back what it works on; once more ends it at once")
        stop.set()

    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # on Windows an interrupt ends the program at once
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, signalled)


def tell(line: str) -> None:
    """A line on stderr."""
    print(f"worker {os.getpid()}: {line}", file=sys.stderr, flush=True)  # noqa: T201
