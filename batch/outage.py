"""Tells an endpoint that is down from tasks that fail, so that a batch does not burn through its input."""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")

IN_A_ROW = 10
"""So many tasks that the endpoint did not answer, without one in between that it did, are an outage."""
FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 300.0
PATIENCE_S = 1800.0
"""How long pauses in a row may be in all."""

_PASSING = frozenset({"circuit_open", "connection", "overloaded", "rate_limit", "timeout"})
_LASTING = frozenset({"auth", "billing", "not_found"})
"""Waiting does not mend these."""

Blame = Literal["nobody", "passing", "lasting"]


def blame(result: Mapping[str, Any]) -> Blame:
    """Whether a run came to nothing because of its endpoint, and whether that may pass."""
    failure = result.get("failure")
    if result["stop_reason"] != "model_error" or result["attempts"] or not failure:
        return "nobody"
    return "passing" if failure["kind"] in _PASSING else "lasting" if failure["kind"] in _LASTING else "nobody"


class Suspects(Generic[T]):
    """Tasks that the endpoint did not answer lately: theirs is the fault if it answers the next, else its own."""

    def __init__(self) -> None:
        self._held: list[T] = []
        self._pause_s = FIRST_PAUSE_S
        self._paused_s = 0.0

    def add(self, suspect: T) -> bool:
        """One more; returns whether it is an outage by now."""
        self._held.append(suspect)
        return len(self._held) >= IN_A_ROW

    def release(self) -> list[T]:
        """All of them, which are none any more."""
        held, self._held = self._held, []
        return held

    def next_pause_s(self) -> float | None:
        """How long to wait before the endpoint is tried again, longer each time; None where patience is at its end."""
        if self._paused_s >= PATIENCE_S:
            return None
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._paused_s += pause
        return pause

    def over(self) -> None:
        """The endpoint answers again."""
        self._pause_s, self._paused_s = FIRST_PAUSE_S, 0.0
