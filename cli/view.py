"""What a run looks like in a terminal."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reflexion.evaluators import GeneratedTests
from reflexion.graphs import Reflexion, Result
from reflexion.models.prices import display_usd
from reflexion.prompts.marks import one_line


class Progress:
    """Shows events as they happen, on stderr; says nothing where that is no terminal."""

    def __init__(self, console: Console, *, shown: bool, live: bool) -> None:
        self._console = console
        self._shown = shown
        self._in_text = False
        self.live = live and shown and console.is_terminal
        """Whether the answer is to be streamed."""
        self.seen: set[int] = set()
        """Numbers of the attempts whose answers were shown."""

    def notice(self, agent: Reflexion, *, chosen: bool) -> None:
        """Say what the user might not expect; shown without a terminal as well.

        Args:
            agent: the open agent.
            chosen: the user has chosen a model or an endpoint.
        """
        if not self._shown:
            return
        if not chosen and agent.uses_embedded_model:
            self._say("no endpoint is configured: the embedded model serves (set REFLEXION_BASE_URL for another)")
        if not agent.persistence.durable:
            self._say(f"{agent.persistence.url}: nothing will be remembered when this command ends")
        if not agent.settings.memory:
            self._say("memory is off: this run uses no lesson and leaves none")

    def show(self, event: dict[str, Any]) -> None:
        """Show one event."""
        if self._shown and self._console.is_terminal:
            getattr(self, f"_{event['event']}", lambda _: None)(event)

    def _say(self, text: str, style: str = "dim") -> None:
        if self._in_text:
            self._console.print()
            self._in_text = False
        self._console.print(Text(text, style=style), highlight=False, soft_wrap=True)

    def _started(self, event: dict[str, Any]) -> None:
        verb = "goes on" if event["resumed"] else "starts"
        self._say(f"thread {event['thread_id']} {verb}")

    def _recalled(self, event: dict[str, Any]) -> None:
        self._say(f"recalled ({event['similarity']:.2f}): {event['text']}", "cyan")

    def _attempt_started(self, event: dict[str, Any]) -> None:
        self._console.print()
        self._say(f"attempt {event['attempt']} ({event['style']})", "bold")

    def _token(self, event: dict[str, Any]) -> None:
        if event["role"] != "actor":
            return
        self._in_text = True
        self._console.print(Text(event["text"]), end="", highlight=False, soft_wrap=True)

    def _attempted(self, event: dict[str, Any]) -> None:
        self.seen.add(event["attempt"])
        if not self.live:
            self._say(event["answer"], "none")

    def _scored(self, event: dict[str, Any]) -> None:
        score = event["score"]
        if score is None:
            self._say(f"no verdict ({event['evaluator']}): {event['feedback']}", "red")
            return
        advisory = ", advisory" if event["advisory"] else ""
        mark = _mark(passed=event["passed"], advisory=event["advisory"]) or "✗"
        style = "green" if mark == "✓" else "yellow"
        repeated = f", repeats attempt {event['repeats']}" if "repeats" in event else ""
        self._say(f"{mark} score {score:.2f} ({event['evaluator']}{advisory}{repeated})", style)
        if event["feedback"] and (not event["passed"] or event["advisory"]):
            self._say(event["feedback"])

    def _reflected(self, event: dict[str, Any]) -> None:
        text = event["text"] or f"no usable reflection: {event['problem']}"
        self._say(f"reflection: {text}", "magenta")

    def _planned(self, event: dict[str, Any]) -> None:
        self._say(f"plan: {event['text']}", "blue")

    def _fell_back(self, event: dict[str, Any]) -> None:
        self._say(
            f"{event['role']}: {event['model']} cannot answer ({event['reason']}), asking {event['to']}", "yellow"
        )

    def _circuit(self, event: dict[str, Any]) -> None:
        self._say(
            f"{event['model']}: the circuit is {event['state']}, it was {event['before']} {event['why']}", "yellow"
        )

    def _usage(self, event: dict[str, Any]) -> None:
        self._say(f"so far: {event['requests']} requests, {event['tokens']:,} tokens, {cost_text(event['cost_usd'])}")


def cost_text(cost_usd: str | None) -> str:
    """A cost for people."""
    return "cost unknown" if cost_usd is None else f"{cost_usd} USD"


def _mark(*, passed: bool, advisory: bool) -> str:
    """A tick is for what was checked."""
    return ("~" if advisory else "✓") if passed else ""


def _caveat(result: Result) -> str:
    by_tests = [attempt for attempt in result.attempts if attempt.evaluator == GeneratedTests.name]
    if not by_tests:
        return "the embedded model judged, and it approves nearly everything"
    best = max(by_tests, key=lambda attempt: attempt.score or 0)
    summary, _, _ = best.feedback.partition("\n")
    return f"attempt {best.number} was judged by tests of the model's own ({one_line(summary, 160)})"


def print_summary(result: Result, console: Console) -> None:
    """The attempts, why the run stopped, and what it used."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("attempt", justify="right")
    table.add_column("score", justify="right")
    table.add_column("by")
    table.add_column("what it taught", overflow="fold")
    for attempt in result.attempts:
        score = "–" if attempt.score is None else f"{attempt.score:.2f}"
        mark = _mark(passed=attempt.passed, advisory=attempt.advisory)
        lesson = attempt.reflection or ("" if attempt.passed else one_line(attempt.feedback, 160))
        table.add_row(f"{attempt.number}", f"{score} {mark}".rstrip(), attempt.evaluator, escape(lesson))
    console.print()
    console.print(table)
    usage = result.usage.as_json()
    estimated = " (partly estimated)" if usage["estimated"] else ""
    lines = [f"stopped: {result.stop_reason} – {one_line(result.stop_detail, 300)}"]
    if result.advisory:
        lines.append(f"the score is advisory: {_caveat(result)}; give --tests or --expect for a verdict")
    lines += [f"used lesson ({lesson['similarity']:.2f}): {lesson['text']}" for lesson in result.lessons_used]
    lines += [f"withheld, to measure what lessons do: {lesson['text']}" for lesson in result.lessons_withheld]
    lines += [f"learned: {lesson['text']}" for lesson in result.lessons_learned]
    if result.usage.tokens and not result.usage.estimated:
        others = [f"{name} {display_usd(cost)}" for name, cost in result.what_if_usd.items()]
        lines.append(f"the same tokens elsewhere: {', '.join(others)}")
    latency = result.latency_ms
    if latency["p50"] is not None:
        lines.append(f"latency in ms: p50 {latency['p50']:.0f}, p95 {latency['p95']:.0f}, p99 {latency['p99']:.0f}")
    lines.append(
        f"{usage['requests']} requests, {result.usage.tokens:,} tokens{estimated}, {cost_text(usage['cost_usd'])}, "
        f"{result.duration_s:.1f} s, thread {result.thread_id}"
    )
    for line in lines:
        console.print(Text(line), highlight=False, soft_wrap=True)
