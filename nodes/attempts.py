"""Reading and merging the attempts of a run."""

import hashlib
from collections.abc import Sequence
from typing import Any

from reflexion.evaluators import Attempt

NEARLY_RIGHT = 0.7
"""Score from which on an attempt is worth repairing; below it a fresh one has been measured to do better."""

KEPT_TEXT = 200_000
"""Characters of answers and verdicts that a run keeps in all: every checkpoint of the run holds them.

Beyond that, of long attempts other than the best and the last no more than the beginning is kept.
"""
KEPT_BEGINNING = 500
"""Characters of an answer, and of its feedback, that is not kept as a whole."""


def merge_attempts(old: Sequence[Attempt] | None, new: Sequence[dict[str, Any]] | None) -> list[Attempt]:
    """The reducer of a run's attempts: each node adds what it knows to the attempt of its number; None clears them."""
    if new is None:
        return []
    merged: dict[int, Any] = {attempt["number"]: attempt for attempt in old or ()}
    for part in new:
        merged[part["number"]] = {**merged.get(part["number"], {}), **part}
    return _bounded([merged[number] for number in sorted(merged)])


def best_attempt(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt with the highest score, the earliest of equals.

    What a reviewer wrote goes before all. One without a verdict comes behind every one that was judged, then one that
    was cut off, by the model or because it was not kept as a whole, then an empty one.
    """
    return max(attempts, key=lambda attempt: (_merit(attempt), -attempt["number"]), default=None)


def same_answer(attempt: Attempt, earlier: Sequence[Attempt]) -> Attempt | None:
    """The first earlier attempt that gave the same answer, empty lines and spaces at line ends aside."""
    answer = _digest(attempt)
    return next((other for other in earlier if _digest(other) == answer), None)


def attempts_without_gain(attempts: Sequence[Attempt]) -> int:
    """How many attempts have passed since the best score was first reached."""
    best = best_attempt(attempts)
    return 0 if best is None else attempts[-1]["number"] - best["number"]


def repetitions(attempts: Sequence[Attempt]) -> int:
    """How many attempts gave an answer that an earlier one had given."""
    return sum("repeats" in attempt for attempt in attempts)


def _digest(attempt: Attempt) -> str:
    if "digest" in attempt:
        return attempt["digest"]
    # What stands in front of a line is kept: an indentation mended makes another program.
    lines = [line.rstrip() for line in attempt["answer"].splitlines() if line.strip()]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _bounded(attempts: list[Attempt]) -> list[Attempt]:
    """The last attempt and the best before it as they are, and of the others the best ones that there is room for."""
    excess = sum(map(_size, attempts)) - KEPT_TEXT
    if excess <= 0:
        return attempts
    kept = {attempt["number"]: attempt for attempt in attempts}
    from_worst = sorted(attempts[:-1], key=lambda attempt: (_merit(attempt), -attempt["number"]))
    for attempt in from_worst[:-1]:
        if excess > 0 and _size(attempt) > 3 * KEPT_BEGINNING:
            kept[attempt["number"]] = _cut(attempt)
            excess -= _size(attempt) - _size(kept[attempt["number"]])
    return list(kept.values())


def _cut(attempt: Attempt) -> Attempt:
    cut = attempt.copy()
    cut["checks"] = []
    cut["feedback"] = attempt.get("feedback", "")[:KEPT_BEGINNING]
    answer = attempt["answer"]
    if len(answer) > 2 * KEPT_BEGINNING:
        cut["digest"] = _digest(attempt)
        cut["answer"] = f"{answer[:KEPT_BEGINNING]}\n[the beginning of {len(answer):,} characters: no more was kept]"
    return cut


def _size(attempt: Attempt) -> int:
    return len(attempt.get("answer", "")) + len(attempt.get("feedback", "")) + sum(map(len, attempt.get("checks", ())))


def _merit(attempt: Attempt) -> float:
    if "digest" in attempt:
        return -2.0
    if attempt["style"] == "edited":
        return 2.0
    if "flaw" in attempt:
        return -3.0 if attempt["flaw"] == "empty" else -2.0
    score = attempt.get("score")
    return -1.0 if score is None else score
