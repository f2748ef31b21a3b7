"""Intervals against published numbers, and what holds for every sample."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators.intervals import ranking
from reflexion.models.intervals import Rate, difference

SAMPLES = st.integers(0, 300).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))
SCORES = st.lists(st.integers(0, 20).map(lambda number: number / 20), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_a_share_has_the_interval_that_newcombe_prints_for_wilsons_method(count, of, low, high):
    rate = Rate(count, of)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=5e-5)


def test_a_difference_has_the_interval_that_newcombe_prints_for_his_tenth_method():
    found = difference(Rate(56, 70), Rate(48, 80))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_nothing_is_known_of_an_empty_sample():
    empty = Rate(0, 0)
    assert (empty.value, empty.low, empty.high) == (None, 0.0, 1.0)
    assert difference(empty, Rate(1, 2)) is None
    assert ranking([], [0.5]) is None


@given(SAMPLES)
def test_the_interval_holds_the_share_and_narrows_with_more_of_the_same(sample):
    count, of = sample
    rate, more = Rate(count, of), Rate(4 * count, 4 * of)
    assert 0 <= rate.low <= rate.high <= 1
    assert of == 0 or rate.low <= rate.value <= rate.high
    assert of == 0 or more.width < rate.width
    other = Rate(of - count, of)
    assert (other.low, other.high) == pytest.approx((1 - rate.high, 1 - rate.low))


@given(SAMPLES, SAMPLES)
def test_a_difference_lies_in_its_interval_and_turns_with_its_sides(one, other):
    found, turned = difference(Rate(*one), Rate(*other)), difference(Rate(*other), Rate(*one))
    if found is None:
        assert 0 in {one[1], other[1]}
        return
    assert -1 - 1e-9 <= found.low <= found.value <= found.high <= 1 + 1e-9
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_the_ranking_counts_pairs_in_order_and_halves_of_ties():
    assert ranking([0.9, 0.5], [0.5, 0.1, 0.7]).value == pytest.approx((3 + 1.5) / 6)


@given(SCORES, SCORES)
def test_the_ranking_is_the_share_of_pairs_in_order(higher, lower):
    found = ranking(higher, lower)
    pairs = [(a > b) + (a == b) / 2 for a in higher for b in lower]
    assert found.value == pytest.approx(sum(pairs) / len(pairs))
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert ranking(lower, higher).value == pytest.approx(1 - found.value)


@given(SCORES, SCORES)
def test_the_bounds_of_a_ranking_are_as_far_from_it_as_chance_goes(higher, lower):
    found, m, n = ranking(higher, lower), len(higher), len(lower)
    for a in (found.low, found.high):
        star = (m + n) / 2 - 1
        deviation = sqrt(a * (1 - a) * (1 + star * (1 - a) / (2 - a) + star * a / (1 + a)) / (m * n))
        assert a in {0, 1} or abs(found.value - a) == pytest.approx(1.959964 * deviation, abs=1e-6)
    assert found.low < found.high
