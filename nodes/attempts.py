"""Reading and merging the attempts of a run."""

from collections.abc import Sequence
from typing import Any

from reflexion.evaluators import Attempt

NEARLY_RIGHT = 0.7
"""Score from which on an attempt is worth repairing; below it a fresh one has been measured to do better."""


def merge_attempts(old: Sequence[Attempt] | None, new: Sequence[dict[str, Any]] | None) -> list[Attempt]:
    """The reducer of a run's attempts: each node adds what it knows to the attempt of its number; None clears them."""
    if new is None:
        return []
    merged: dict[int, Any] = {attempt["number"]: attempt for attempt in old or ()}
    for part in new:
        merged[part["number"]] = {**merged.get(part["number"], {}), **part}
    return [merged[number] for number in sorted(merged)]


def best_attempt(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt with the highest score, the earliest of equals.

    What a reviewer wrote goes before all. One without a verdict comes behind every one that was judged, then one that
    was cut off, then an empty one.
    """
    return max(attempts, key=lambda attempt: (_merit(attempt), -attempt["number"]), default=None)


def same_answer(attempt: Attempt, earlier: Sequence[Attempt]) -> Attempt | None:
    """The first earlier attempt that gave the same answer, empty lines and spaces at line ends aside."""
    answer = _lines(attempt)
    return next((other for other in earlier if _lines(other) == answer), None)


def attempts_without_gain(attempts: Sequence[Attempt]) -> int:
    """How many attempts have passed since the best score was first reached."""
    best = best_attempt(attempts)
    return 0 if best is None else attempts[-1]["number"] - best["number"]


def repetitions(attempts: Sequence[Attempt]) -> int:
    """How many attempts gave an answer that an earlier one had given."""
    return sum("repeats" in attempt for attempt in attempts)


def _lines(attempt: Attempt) -> list[str]:
    # What stands in front of a line is kept: an indentation mended makes another program.
    return [line.rstrip() for line in attempt["answer"].splitlines() if line.strip()]


def _merit(attempt: Attempt) -> float:
    if attempt["style"] == "edited":
        return 2.0
    if "flaw" in attempt:
        return -3.0 if attempt["flaw"] == "empty" else -2.0
    score = attempt.get("score")
    return -1.0 if score is None else score
