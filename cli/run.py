"""`reflexion run`."""

import asyncio
import json
import shlex
import signal
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from reflexion.cli.errors import one_line
from reflexion.cli.options import INTERRUPTED, NOT_PASSED, PASSED, UNREACHABLE, WRONG_USE
from reflexion.cli.review import TerminalReviewer, interactive, read_decision
from reflexion.cli.view import Progress, print_summary
from reflexion.graphs import ConfigurationError, Reflexion, Result, ReviewPending, open_reflexion
from reflexion.graphs.installation import read_installation
from reflexion.nodes import make_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    task: str | None
    tests: Path | None
    expect: str | None
    criteria: list[str]
    thread: str | None
    wait_s: float
    decision: str | None
    settings: dict[str, Any]
    installation: dict[str, Any]
    as_json: bool
    quiet: bool


def run_task(request: Request) -> int:
    """Run the task and print what came of it; returns the exit code."""
    try:
        result, seen = asyncio.run(_run(request))
    except ReviewPending as pending:
        return _waiting(pending, as_json=request.as_json)
    if request.as_json:
        print(json.dumps(result.as_json(), ensure_ascii=False, indent=2))  # noqa: T201
    elif result.failure and not result.attempts:
        print(f"reflexion: {one_line(result.stop_detail)}", file=sys.stderr)  # noqa: T201
    else:
        just_shown = any(last.number in seen and last.answer == result.answer for last in result.attempts[-1:])
        if not (just_shown and sys.stdout.isatty()):
            print(result.answer)  # noqa: T201
        if not request.quiet:
            print_summary(result, Console())
    return exit_code(result)


def _waiting(pending: ReviewPending, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"thread_id": pending.thread_id, "review": pending.request}, ensure_ascii=False, indent=2))  # noqa: T201
    else:
        print(pending.request["answer"])  # noqa: T201
    print(  # noqa: T201
        f"reflexion: attempt {pending.request['attempt']} waits for a review; go on with: "
        f"reflexion run --thread {shlex.quote(pending.thread_id)} --decision approve",
        file=sys.stderr,
    )
    return NOT_PASSED


def exit_code(result: Result) -> int:
    """0 passed, 1 not passed, 2 the settings are wrong, 3 the model could not be reached, 130 interrupted."""
    if result.passed:
        return PASSED
    if result.misconfigured:
        return WRONG_USE
    return {"model_error": UNREACHABLE, "cancelled": INTERRUPTED}.get(result.stop_reason, NOT_PASSED)


async def _run(request: Request) -> tuple[Result, set[int]]:
    """The result, and the numbers of the attempts whose answers the terminal has shown."""
    progress = Progress(Console(stderr=True), shown=not request.quiet, live=not request.as_json)
    arguments: dict[str, Any] = {
        "task": sys.stdin.read() if request.task == "-" else request.task,
        "tests": _read_tests(request.tests),
        "expect": request.expect,
        "criteria": request.criteria,
        "thread": request.thread,
        "wait_s": request.wait_s,
        "decision": read_decision(request.decision),
        "reviewer": TerminalReviewer(Console(stderr=True), progress.seen) if interactive() else None,
        **request.settings,  # told to the run as well: it keeps them where it is broken off
    }
    if request.task is None and request.thread is None:
        raise ConfigurationError("no task: reflexion run TASK, or --thread NAME to go on with what was broken off")
    installation = read_installation(**request.installation)
    agent = open_reflexion(
        make_settings(**request.settings),
        connection=installation,
        database_url=installation.database_url,
        prompts=installation.prompts,
    )
    async with agent:
        progress.notice(agent, chosen=bool(installation.base_url or agent.settings.model))
        return await _watched(agent, arguments, progress), progress.seen


async def _watched(agent: Reflexion, arguments: dict[str, Any], progress: Progress) -> Result:
    """Show the events; the first interrupt ends the run with its best attempt."""
    result: Result | None = None
    events = agent.stream(**arguments, stream=progress.live)
    async with aclosing(events):
        async for event in events:
            if event["event"] == "started":
                _cancel_on_interrupt(agent, event["thread_id"])
            if event["event"] == "result":
                result = event["result"]
            progress.show(event)
    assert result is not None
    return result


def _cancel_on_interrupt(agent: Reflexion, thread: str) -> None:
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # a second one ends the program at once
        loop.create_task(agent.cancel(thread))  # noqa: RUF006 - the loop lives as long as the run

    with suppress(NotImplementedError):  # on Windows an interrupt ends the program at once
        loop.add_signal_handler(signal.SIGINT, interrupted)


def _read_tests(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--tests {path}: cannot be read: {error}") from error
    if not text.strip():
        raise ConfigurationError(f"--tests {path}: is empty")
    return text
