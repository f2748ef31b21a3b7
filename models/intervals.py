"""95 % confidence intervals for what is counted on a sample: shares, and differences of shares."""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

Z = NormalDist().inv_cdf(0.975)
"""Standard deviations to either side that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that a sample tells, and between which bounds the true one lies with 95 % confidence."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of a sample; its interval is Wilson's (1927, JASA 22:209), which holds for small samples and at 0 and 1.

    Brown, Cai and DasGupta (2001, Statistical Science 16:101) recommend it for samples of up to 40.
    """

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """The share, 0..1; None of an empty sample."""
        return self.count / self.of if self.of else None

    @property
    def low(self) -> float:
        """Lower bound of the share."""
        return 0.0 if self.count == 0 else self._middle - self._half

    @property
    def high(self) -> float:
        """Upper bound of the share."""
        return 1.0 if self.count == self.of else self._middle + self._half

    @property
    def width(self) -> float:
        """Of the interval, 0..1; 1 of an empty sample."""
        return self.high - self.low

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"count": self.count, "of": self.of, "value": self.value, "low": self.low, "high": self.high}

    @property
    def _middle(self) -> float:
        return (self.count + Z**2 / 2) / (self.of + Z**2)

    @property
    def _half(self) -> float:
        return Z / (self.of + Z**2) * sqrt(self.count * (self.of - self.count) / self.of + Z**2 / 4)


def difference(one: Rate, other: Rate) -> Estimate | None:
    """The first share less the second, of independent samples; None where one is empty.

    The interval is made of the two of Wilson (Newcombe 1998, Statistics in Medicine 17:873, method 10).
    """
    if one.value is None or other.value is None:
        return None
    value = one.value - other.value
    below = sqrt((one.value - one.low) ** 2 + (other.high - other.value) ** 2)
    above = sqrt((one.high - one.value) ** 2 + (other.value - other.low) ** 2)
    return Estimate(value, value - below, value + above)
