"""How far an evaluator's verdicts can be trusted, told from answers of which it is known whether they are right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from reflexion.evaluators.intervals import ranking
from reflexion.evaluators.passing import TOLERANCE, passes
from reflexion.models.intervals import Estimate, Rate, difference

Judged = tuple[float | None, bool]
"""A score (0..1; None for no verdict), and whether the answer is right."""

BINS = 10
"""Of the reliability table, besides the one for full marks."""
WIDEST = 0.3
"""A share that is known less exactly than this (15 points to either side) is not known well enough to act on."""
ENOUGH = 39
"""With so many examples Wilson's interval is never wider than `WIDEST`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPoint:
    """What a threshold would have come to on the same examples."""

    threshold: float
    up_to: float
    """The largest threshold that would have come to the same."""
    false_passes: float
    """Share of the wrong answers that pass, 0..1."""
    false_failures: float
    """Share of the right answers that fail, 0..1."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "threshold": self.threshold,
            "up_to": self.up_to,
            "false_passes": self.false_passes,
            "false_failures": self.false_failures,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBin:
    """One row of the reliability table."""

    low: float
    """Scores from this one on, 0..1."""
    high: float
    """Scores below this one; the same as `low` for full marks."""
    mean_score: float
    right: Rate
    """How many of the answers with such a score are right."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"low": self.low, "high": self.high, "mean_score": self.mean_score, "right": self.right.as_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What an evaluator does with right and with wrong answers. Shares leave out what it gave no verdict on."""

    threshold: float
    no_verdict: Rate
    """Of all examples."""
    false_passes: Rate
    """Of the wrong answers, how many pass."""
    false_failures: Rate
    """Of the right answers, how many fail."""
    accuracy: Rate
    """Of all answers, how many verdicts are true."""
    gain: Estimate | None
    """Share of right answers that pass, less that of wrong ones: 1 for a perfect evaluator, 0 for one that guesses."""
    auc: Estimate | None
    """How often a right answer scores above a wrong one, 0.5 for chance; None where scores are only 0 and 1."""
    points: tuple[ThresholdPoint, ...]
    """One for each threshold that would make a difference, from 0 upwards."""
    balanced: ThresholdPoint | None
    """Where false passes and false failures are nearest to each other; None where no threshold beats chance."""
    reliability: tuple[ScoreBin, ...]
    """By score; bins without an example are left out."""

    @property
    def better_than_chance(self) -> bool:
        """Whether it is sure (95 %) that right answers pass more often than wrong ones."""
        return self.gain is not None and self.gain.low > 0

    @property
    def notes(self) -> list[str]:
        """What forbids to rely on these numbers, or on the evaluator, in plain sentences; empty where nothing does."""
        return [note for note in (*_notes_on_examples(self), _note_on_threshold(self), _note_on_ranking(self)) if note]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; shares from 0 to 1, bounds of 95 % confidence."""
        return {
            "threshold": self.threshold,
            "no_verdict": self.no_verdict.as_json(),
            "false_passes": self.false_passes.as_json(),
            "false_failures": self.false_failures.as_json(),
            "accuracy": self.accuracy.as_json(),
            "gain": self.gain and self.gain.as_json(),
            "auc": self.auc and self.auc.as_json(),
            "better_than_chance": self.better_than_chance,
            "balanced": self.balanced and self.balanced.as_json(),
            "points": [point.as_json() for point in self.points],
            "reliability": [score_bin.as_json() for score_bin in self.reliability],
            "notes": self.notes,
        }


def calibration_of(judged: Iterable[Judged], threshold: float = 0.8) -> Calibration:
    """Measure an evaluator by its scores of answers whose truth is known.

    Raises:
        ValueError: the threshold or a score is neither None nor within 0..1.
    """
    everything = list(judged)
    scored = [(score, truth) for score, truth in everything if score is not None]
    if not all(0 <= number <= 1 for number in (threshold, *(score for score, _ in scored))):
        raise ValueError("threshold and scores have to lie within 0..1")
    right = [score for score, truth in scored if truth]
    wrong = [score for score, truth in scored if not truth]
    false_passes = Rate(sum(passes(score, threshold) for score in wrong), len(wrong))
    false_failures = Rate(sum(not passes(score, threshold) for score in right), len(right))
    points = tuple(_points(right, wrong)) if right and wrong else ()
    return Calibration(
        threshold=threshold,
        no_verdict=Rate(len(everything) - len(scored), len(everything)),
        false_passes=false_passes,
        false_failures=false_failures,
        accuracy=Rate(len(scored) - false_passes.count - false_failures.count, len(scored)),
        gain=difference(Rate(len(right) - false_failures.count, len(right)), false_passes),
        auc=ranking(right, wrong) if {*right, *wrong} - {0, 1} else None,
        points=points,
        balanced=_balanced(points),
        reliability=tuple(_reliability(scored)),
    )


def _points(right: Sequence[float], wrong: Sequence[float]) -> list[ThresholdPoint]:
    ordered = sorted({*right, *wrong})
    # Scores as near to each other as this are the same to `passes`.
    steps = [(a, b) for a, b in pairwise([*ordered, 1 + TOLERANCE]) if b - a > 4 * TOLERANCE]
    thresholds = [(0.0, ordered[0]), *((_between(a, b), min(b, 1.0)) for a, b in steps)]
    return [
        ThresholdPoint(
            threshold=threshold,
            up_to=up_to,
            false_passes=sum(passes(score, threshold) for score in wrong) / len(wrong),
            false_failures=sum(not passes(score, threshold) for score in right) / len(right),
        )
        for threshold, up_to in thresholds
    ]


def _between(a: float, b: float) -> float:
    """A threshold that b passes and a does not, about in the middle and with few digits."""
    middle = (a + b) / 2
    rounded = (round(middle, digits) for digits in range(2, 9))
    return next((number for number in rounded if passes(b, number) and not passes(a, number)), middle)


def _balanced(points: Sequence[ThresholdPoint]) -> ThresholdPoint | None:
    better = [point for point in points if point.false_passes + point.false_failures < 1]
    return min(
        better,
        key=lambda p: (abs(p.false_passes - p.false_failures), p.false_passes + p.false_failures, -p.threshold),
        default=None,
    )


def _reliability(scored: Sequence[tuple[float, bool]]) -> list[ScoreBin]:
    bins: dict[int, list[tuple[float, bool]]] = {}
    for score, truth in scored:
        bins.setdefault(int(score * BINS + TOLERANCE), []).append((score, truth))
    return [
        ScoreBin(
            low=number / BINS,
            high=min(1.0, (number + 1) / BINS),
            mean_score=sum(score for score, _ in rows) / len(rows),
            right=Rate(sum(truth for _, truth in rows), len(rows)),
        )
        for number, rows in sorted(bins.items())
    ]


def _notes_on_examples(found: Calibration) -> list[str]:
    if found.accuracy.of == 0:
        return ["No example has a verdict: nothing was measured."]
    notes = []
    if found.no_verdict.count:
        notes.append(
            f"{found.no_verdict.count} of {found.no_verdict.of} examples got no verdict and count nowhere else."
        )
    for rate, which, lacking in (
        (found.false_passes, "wrong", "false passes"),
        (found.false_failures, "right", "false failures"),
    ):
        if rate.of == 0:
            notes.append(f"No {which} answers among the examples: {lacking} could not be measured.")
        elif rate.width > WIDEST:
            notes.append(
                f"Too few {which} answers to tell: the share of {lacking} may be anything from {100 * rate.low:.0f} to "
                f"{100 * rate.high:.0f} %. {ENOUGH} {which} answers are always enough to know it to 15 points."
            )
    return notes


def _note_on_threshold(found: Calibration) -> str:
    right, wrong, gain = found.false_failures, found.false_passes, found.gain
    if gain is None:
        return ""
    if wrong.count == wrong.of and right.count == 0:
        return f"It passes everything, all {wrong.of} wrong answers too: a pass says nothing."
    if wrong.count == 0 and right.count == right.of:
        return f"It fails everything, all {right.of} right answers too: a failure says nothing."
    if gain.high < 0:
        return (
            "It passes wrong answers more often than right ones: look whether truth and scores mean what they should."
        )
    if gain.low <= 0:
        return (
            "At this threshold it cannot be told from chance: right answers pass more often than wrong ones by "
            f"{100 * gain.value:+.0f} points (95 % interval {100 * gain.low:+.0f} to {100 * gain.high:+.0f})."
        )
    return ""


def _note_on_ranking(found: Calibration) -> str:
    if found.better_than_chance or found.auc is None or found.auc.low <= 0.5:
        return ""
    return "Its scores do tell right answers from wrong ones: another threshold makes use of that."
