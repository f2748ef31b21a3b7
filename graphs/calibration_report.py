"""What a calibration gives back."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

from reflexion.evaluators.calibration import Calibration
from reflexion.graphs.verdict_file import Verdict
from reflexion.models import CONFIGURATION, Usage

Stop = Literal["", "budget", "deadline", "model_error", "cancelled"]
"""Why a calibration ended before its last example; empty where it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedExample:
    """An example that could not be judged because a model could not be asked."""

    id: str
    kind: str
    """Of the `ModelError`."""
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """What a calibration found, how it went, and what it used."""

    calibration: Calibration
    verdicts: tuple[Verdict, ...]
    """In the order of the examples."""
    failed: tuple[FailedExample, ...]
    examples: int
    """How many were given."""
    reused: int
    """Verdicts that were in the file already, and cost nothing."""
    stop_reason: Stop
    stop_detail: str
    usage: Usage
    """Of this calibration, without the verdicts that were reused."""
    duration_s: float
    calibration_id: str
    """The ledger's lines have it as their `batch_id`."""

    @property
    def evaluators(self) -> dict[str, int]:
        """How many verdicts are of which evaluator."""
        return dict(Counter(verdict.evaluator for verdict in self.verdicts))

    @property
    def misconfigured(self) -> bool:
        """Whether a change of the settings, not waiting, would have let it measure something."""
        if self.stop_reason == "budget":
            return not self.verdicts
        ended = self.stop_reason == "model_error" or not self.verdicts
        return ended and any(failed.kind in CONFIGURATION for failed in self.failed)

    @property
    def notes(self) -> list[str]:
        """What forbids to rely on the numbers, or on the evaluator, in plain sentences."""
        notes = list(self.calibration.notes)
        if missing := self.examples - len(self.verdicts):
            why = f" ({self.stop_reason}: {self.stop_detail})" if self.stop_reason else ""
            notes.insert(0, f"{missing} of {self.examples} examples were not judged{why}.")
        if len(self.evaluators) > 1:
            notes.append(
                "Several evaluators judged: put each one's examples in a file of their own to tell them apart."
            )
        if advisory := sorted({verdict.evaluator for verdict in self.verdicts if verdict.advisory}):
            notes.append(f"Scores of {', '.join(advisory)} are advisory here: a run learns nothing by them.")
        return notes

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, as `reflexion calibrate --json` prints it."""
        return self.calibration.as_json() | {
            "notes": self.notes,
            "examples": self.examples,
            "judged": len(self.verdicts),
            "reused": self.reused,
            "evaluators": self.evaluators,
            "stop_reason": self.stop_reason or None,
            "stop_detail": self.stop_detail,
            "failed": [asdict(failed) for failed in self.failed],
            "usage": self.usage.as_json(),
            "duration_s": self.duration_s,
            "calibration_id": self.calibration_id,
        }
