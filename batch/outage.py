"""Tells an endpoint that is down from tasks that fail, so that a batch does not burn through its input."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from reflexion.batch.journal import Due
from reflexion.batch.records import Record

IN_A_ROW = 10
"""So many tasks that the endpoint did not answer, without one in between that it did, are an outage."""
FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 300.0
PATIENCE_S = 1800.0
"""How long pauses in a row may be in all."""

_PASSING = frozenset({"circuit_open", "connection", "overloaded", "rate_limit", "timeout"})
_LASTING = frozenset({"auth", "billing", "not_found"})
"""Waiting does not mend these."""

Blame = Literal["task", "passing", "lasting"]


def blame(result: Mapping[str, Any]) -> Blame:
    """Whether a run came to nothing by its task, or by an endpoint's trouble that may pass or will last."""
    failure = result.get("failure")
    if not failure or result["stop_reason"] != "model_error" or result["attempts"]:
        return "task"
    return "passing" if failure["kind"] in _PASSING else "lasting" if failure["kind"] in _LASTING else "task"


class Outage:
    """Watches how the endpoint answers.

    A task that it did not answer is a suspect. If it answers the next one, the fault was the suspects' own; if ten in
    a row are not answered, it is down: they are put back, nothing is handed out for a while, and then one task at a
    time is tried.
    """

    def __init__(self, wake: Callable[[], None], tell: Callable[..., None]) -> None:
        """Watch.

        Args:
            wake: called when a task may be tried.
            tell: sends an event.
        """
        self._wake = wake
        self._tell = tell
        self._suspects: list[tuple[Record, Due]] = []
        self._probe: Due | None = None
        self._tries = 0
        self._pause_s, self._paused_s = FIRST_PAUSE_S, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.reason = ""
        """Why nothing is handed out; empty where the endpoint is thought to be up."""
        self.final = ""
        """Why waiting for it has no sense any more."""

    @property
    def lets_through(self) -> bool:
        """Whether a task may be handed out."""
        return not self.reason or self._tries > 0

    def handed_out(self, due: Due) -> None:
        """A task was handed out."""
        if self.reason:
            self._tries, self._probe = 0, due

    def silent(self, record: Record, due: Due, *, lasting: bool) -> list[Due]:
        """The endpoint did not answer a task; returns those to be put back."""
        if self.reason:
            if due is self._probe:
                self._pause(record.error)
            return [due]
        self._suspects.append((record, due))
        if len(self._suspects) < IN_A_ROW:
            return []
        if lasting:
            self.reason = self.final = record.error
        else:
            self._pause(record.error)
        return [suspect for _, suspect in self.suspects()]

    def answered(self) -> list[tuple[Record, Due]]:
        """The endpoint answered a task; returns those that it did not answer before, which was their own fault."""
        if self.reason:
            self.close()
            self._tell("resumed")
        self.reason, self._tries, self._probe = "", 0, None
        self._pause_s, self._paused_s = FIRST_PAUSE_S, 0.0
        return self.suspects()

    def untold(self, due: Due) -> None:
        """A task ended without a word of the endpoint's."""
        if due is self._probe:
            self._try()

    def suspects(self) -> list[tuple[Record, Due]]:
        """The suspects, which are none any more."""
        suspects, self._suspects = self._suspects, []
        return suspects

    def close(self) -> None:
        """End the pause."""
        if self._timer:
            self._timer.cancel()

    def _pause(self, reason: str) -> None:
        seconds, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._paused_s += seconds
        self.reason, self._probe = reason, None
        if self._paused_s > PATIENCE_S:
            self.final = f"the endpoint stays down: {reason}"
            return
        self._tell("paused", reason=reason, seconds=seconds)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._try)

    def _try(self) -> None:
        self._tries = 1
        self._wake()
