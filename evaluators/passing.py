"""When a score passes."""

TOLERANCE = 1e-9
"""Float sums such as 0.1 + 0.7 must not miss a threshold of 0.8."""


def passes(score: float | None, threshold: float) -> bool:
    """Whether a score reaches the threshold; no verdict never does."""
    return score is not None and score >= threshold - TOLERANCE
