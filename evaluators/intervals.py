"""The 95 % confidence interval of a ranking; those of shares lie where the memory may reach them as well."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from math import sqrt

from reflexion.models.intervals import Estimate, Z


def ranking(higher: list[float], lower: list[float]) -> Estimate | None:
    """How often one of `higher` is above one of `lower`, ties counted half: the area under the ROC curve.

    The interval solves |A - a| = z·s(a) for a, as Wilson's does, with the variance of Hanley and McNeil (Newcombe 2006,
    Statistics in Medicine 25:559, method 5), and so is no point where the ranking is perfect. None where one is empty.
    """
    m, n = len(higher), len(lower)
    if not m or not n:
        return None
    area = _pairs_in_order(higher, lower) / (m * n)
    star = (m + n) / 2 - 1

    def too_far(a: float) -> bool:
        variance = a * (1 - a) * (1 + star * (1 - a) / (2 - a) + star * a / (1 + a)) / (m * n)
        return abs(area - a) > Z * sqrt(variance)

    return Estimate(area, _edge(too_far, area, 0.0), _edge(too_far, area, 1.0))


def _pairs_in_order(higher: list[float], lower: list[float]) -> float:
    ordered = sorted(lower)
    return sum((bisect_left(ordered, score) + bisect_right(ordered, score)) / 2 for score in higher)


def _edge(too_far: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last value on the way from inside to outside that is not too far, by bisection."""
    if not too_far(outside):
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if too_far(middle) else (middle, outside)
    return inside
