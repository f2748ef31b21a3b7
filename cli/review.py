"""Asks whoever sits at the terminal for decisions."""

import asyncio
import json
import sys
import threading
from collections.abc import Container
from concurrent.futures import Future
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from reflexion.graphs import ReviewRequest

Choices = dict[str, str]
_ANSWER: Choices = {"a": "approve", "e": "edit", "r": "reject", "s": "stop"}
_ATTEMPT: Choices = {"a": "approve", "e": "edit", "s": "stop"}
_PARTS: Choices = {"r": "reflection", "p": "plan", "a": "answer"}


class TerminalReviewer:
    """A `Reviewer` at a terminal; texts are edited in $EDITOR."""

    def __init__(self, console: Console, seen: Container[int]) -> None:
        """Ask on a console.

        Args:
            console: where to.
            seen: numbers of the attempts that it has shown already.
        """
        self._console = console
        self._seen = seen

    async def __call__(self, request: ReviewRequest) -> dict[str, Any]:
        """Show what there is to decide on and ask, without holding up the event loop."""
        decided: Future[dict[str, Any]] = Future()
        decided.set_running_or_notify_cancel()  # whoever stops waiting leaves the thread to itself

        def ask() -> None:
            try:
                self._show(request)
                decided.set_result(self._ask(request))
            except EOFError:
                decided.set_result({"action": "stop"})
            except BaseException as raised:  # noqa: BLE001 - handed to the loop
                decided.set_exception(raised)

        # Not one of the loop's own threads, which it would wait for at its end: an interrupt ends the run meanwhile.
        threading.Thread(target=ask, name="reflexion-review", daemon=True).start()
        return await asyncio.wrap_future(decided)

    def _show(self, request: ReviewRequest) -> None:
        if request["attempt"] in self._seen:
            return
        self._console.print(Text(request["answer"]), soft_wrap=True)
        for name in ("feedback", "reflection", "plan"):
            if text := request[name]:
                self._console.print(Text(f"{name}: {text}"), soft_wrap=True)

    def _ask(self, request: ReviewRequest) -> dict[str, Any]:
        about_answer = request["about"] == "answer"
        self._console.print()
        question = "accept this answer?" if about_answer else "make another attempt?"
        self._console.print(Text(f"review of attempt {request['attempt']}: {question}", style="bold"))
        action = self._choose(_ANSWER if about_answer else _ATTEMPT)
        if action == "reject":
            feedback = self._line("what is wrong with it? ")
            return {"action": action} | ({"feedback": feedback} if feedback else {})
        if action != "edit":
            return {"action": action}
        part = "answer" if about_answer else self._choose(_PARTS)
        before: str = request[part]  # type: ignore[literal-required]
        edited = click.edit(before)
        if edited is None or not edited.strip():
            self._console.print("nothing was changed")
            return self._ask(request)
        return {"action": "edit", part: edited.rstrip("\n")}

    def _choose(self, choices: Choices) -> str:
        offered = ", ".join(f"[{key}]{name.removeprefix(key)}" for key, name in choices.items())
        while True:
            given = self._line(f"{offered}: ").lower()
            for key, name in choices.items():
                if given in {key, name}:
                    return name

    def _line(self, prompt: str) -> str:
        self._console.print(Text(prompt), end="")
        return input().strip()


def interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_decision(text: str | None) -> Any:
    """A decision of the command line: a word, or JSON."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # refused with the others that are none
