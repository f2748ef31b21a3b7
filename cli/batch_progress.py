"""How a batch that is worked on looks on stderr: live in a terminal, a line now and then elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reflexion.batch import Batch, BatchEvent, Progress
from reflexion.cli.errors import one_line
from reflexion.models.prices import display_usd

REFRESH_S = 0.25
FIRST_LINE_S = 2.0
LINE_S = 30.0
"""Seconds between two lines where there is no terminal."""
_MOST_ERRORS = 5
"""Errors that are shown as they happen."""
_LONGEST = 200


class Display:
    """Shows a batch; nothing of it where that is not wanted."""

    def __init__(self, console: Console, *, shown: bool) -> None:
        self.console = console
        self._shown = shown
        self._live: Live | None = None
        self._errors = 0
        self.begun = asyncio.Event()
        """Set when the batch knows how it stands."""
        self.note = "Ctrl-C breaks off; the same command goes on"
        """The last line, and a short one: the terminal writes ^C behind it."""

    def tell(self, event: BatchEvent) -> None:
        """Listen to the batch."""
        if event["event"] == "batch_started":
            self.begun.set()
        elif event["event"] == "task_finished" and event["status"] == "error":
            self._errors += 1
            if self._errors <= _MOST_ERRORS:
                more = "; further errors are in the results" if self._errors == _MOST_ERRORS else ""
                self.say(f"{event['id']}: {_short(event['error'])}{more}", "red")
        elif words := _words(event):
            self.say(words, "yellow")

    def say(self, text: str, style: str = "none") -> None:
        """Print a line above what is live."""
        if self._shown:
            self.console.print(Text(text, style=style), highlight=False, soft_wrap=True)

    @contextlib.asynccontextmanager
    async def watching(self, batch: Batch) -> AsyncIterator[None]:
        """Show it as long as this is open."""
        if not self._shown:
            yield
            return
        ticking = asyncio.create_task(self._tick(batch))
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)

    def close(self) -> None:
        """Give the terminal back."""
        if self._live:
            self._live.stop()

    async def _tick(self, batch: Batch) -> None:
        await self.begun.wait()
        if not self.console.is_terminal:
            await asyncio.sleep(FIRST_LINE_S)
            while True:
                self.say("; ".join(lines_of(await batch.progress())))
                await asyncio.sleep(LINE_S)
        with Live(console=self.console, auto_refresh=False, transient=True) as self._live:
            while True:
                self._live.update(self._picture(await batch.progress()), refresh=True)
                await asyncio.sleep(REFRESH_S)

    def _picture(self, progress: Progress) -> Group:
        first, *others = lines_of(progress)
        bar = ProgressBar(
            total=progress.expected, completed=_ended(progress), pulse=progress.expected is None, width=30
        )
        head = Table.grid(padding=(0, 1))
        head.add_row(bar, Text(first, no_wrap=True, overflow="ellipsis"))
        texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in others]
        return Group(head, *texts, Text(self.note, style="dim"))


def lines_of(progress: Progress) -> list[str]:
    """How a batch stands, in a few lines: how far, what came of it, what it cost, and what hinders it."""
    return [_how_far(progress), _outcomes(progress), _costs(progress), *_hindrances(progress)]


def _ended(progress: Progress) -> int:
    return sum(number for status, number in progress.counts.items() if status != "not_run")


def _how_far(progress: Progress) -> str:
    ended, expected, rate = _ended(progress), progress.expected, progress.rate
    parts = [tasks(ended) if expected is None else f"{ended:,} of {tasks(expected)}"]
    if expected:
        parts.append(f"{min(100, 100 * ended // expected)} %")
    if rate:
        parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min")
    parts.append(clock(progress.elapsed_s))
    if expected and rate and expected > ended and not (progress.stopped or progress.paused):
        parts.append(f"{clock((expected - ended) / rate)} to go")
    return ", ".join(parts)


def _outcomes(progress: Progress) -> str:
    counts = progress.counts
    parts = [f"{counts.get(status, 0):,} {status}" for status in ("passed", "failed", "unscored", "error")]
    if counts.get("not_run"):
        parts.append(f"{counts['not_run']:,} not run")
    return ", ".join([*parts, f"{progress.running} at work"])


def _costs(progress: Progress) -> str:
    spent = progress.spent
    if spent.cost_usd is None:
        cost = "cost unknown"
    else:
        cost = display_usd(spent.cost_usd) + _of(progress.budget_usd, display_usd)
        if progress.forecast_usd is not None and progress.forecast_usd > spent.cost_usd:
            cost += f" (forecast {display_usd(progress.forecast_usd)})"
    tokens = f"{spent.tokens:,}{_of(progress.budget_tokens, '{:,}'.format)} tokens"
    if progress.forecast_tokens is not None and progress.forecast_tokens > spent.tokens:
        tokens += f" (forecast {progress.forecast_tokens:,})"
    return f"{cost}, {tokens}"


def _of(limit: Any, shown: Any) -> str:
    return "" if limit is None else f" of {shown(limit)}"


def _hindrances(progress: Progress) -> Iterator[str]:
    for limit in progress.health.limits:
        left = {"requests": limit.requests_left, "tokens": limit.tokens_left}
        known = [f"{max(0, int(number)):,} {unit} left now" for unit, number in left.items() if number is not None]
        if known or limit.queued:
            yield f"limits of {limit.model}: " + ", ".join(
                [*known, f"{limit.in_flight} in flight, {limit.queued} wait"]
            )
    for circuit in progress.health.circuits:
        if circuit.state != "closed":
            again = "" if circuit.retry_in_s is None else f", tried again in {circuit.retry_in_s:.0f} s"
            yield f"the circuit of {circuit.model} is {circuit.state}{again}: {_short(circuit.why)}"
    if saved := _savings(asdict(progress.savings)):
        yield f"saving: {saved}"
    if progress.stopped:
        yield f"stopped: {_short(progress.stopped)}"
    elif progress.paused:
        yield f"paused: {_short(progress.paused)}"


def _words(event: BatchEvent) -> str:
    match event["event"]:
        case "saving":
            share = f"{100 * event['left']:.0f} % of the money or time is left"
            return f"{share}; further tasks get {_savings(event) or 'everything again'}"
        case "paused":
            return f"paused for {event['seconds']:.0f} s: {_short(event['reason'])}"
        case "resumed":
            return "the endpoint answers again"
        case "stopped":
            return f"stopped: {_short(event['reason'])}"
    return ""


def _savings(given_up: Mapping[str, Any]) -> str:
    words = {
        "cheaper_model": "the cheaper model",
        "fewer_attempts": "half the attempts",
        "no_planner": "no plans",
    }
    return ", ".join(said for name, said in words.items() if given_up[name])


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"


def tasks(number: int) -> str:
    """So many tasks."""
    return f"{number:,} task" if number == 1 else f"{number:,} tasks"


def clock(seconds: float) -> str:
    """A time for people: `0:05`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
