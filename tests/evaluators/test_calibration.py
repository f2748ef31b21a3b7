"""What a calibration says of scores whose truth is known."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators import calibration_of
from reflexion.evaluators.calibration import ENOUGH, WIDEST
from reflexion.models.intervals import Rate

SCORES = st.integers(0, 100).map(lambda number: number / 100)
JUDGED = st.lists(st.tuples(st.none() | SCORES, st.booleans()), max_size=60)

TEN = [(0.9, True)] * 8 + [(0.5, True)] * 2 + [(0.9, False)] * 3 + [(0.2, False)] * 7
"""Ten right and ten wrong answers."""


def test_the_shares_are_those_counted_by_hand():
    found = calibration_of([*TEN, (None, True)], 0.8)
    assert (found.false_passes, found.false_failures) == (Rate(3, 10), Rate(2, 10))
    assert (found.accuracy, found.no_verdict) == (Rate(15, 20), Rate(1, 21))
    assert found.gain.value == pytest.approx(0.8 - 0.3)
    assert found.auc.value == pytest.approx((8 * (7 + 1.5) + 2 * 7) / 100)
    assert found.better_than_chance


def test_every_threshold_that_makes_a_difference_is_a_point():
    points = calibration_of(TEN).points
    assert [(p.threshold, p.up_to, p.false_passes, p.false_failures) for p in points] == [
        (0.0, 0.2, 1.0, 0.0),
        (0.35, 0.5, 0.3, 0.0),
        (0.7, 0.9, 0.3, 0.2),
        (0.95, 1.0, 0.0, 1.0),
    ]
    assert calibration_of(TEN).balanced == points[2]


def test_the_reliability_table_counts_right_answers_by_score_and_full_marks_apart():
    found = calibration_of([*TEN, (1.0, True), (1.0, False), (0.95, False)])
    rows = [(row.low, row.high, row.right.count, row.right.of) for row in found.reliability]
    assert rows == [(0.2, 0.3, 0, 7), (0.5, 0.6, 2, 2), (0.9, 1.0, 8, 12), (1.0, 1.0, 1, 2)]
    assert found.reliability[2].mean_score == pytest.approx((11 * 0.9 + 0.95) / 12)


def test_a_threshold_is_reached_by_its_own_value_as_in_a_run():
    found = calibration_of([(0.1 + 0.7, True), (7 / 10, False)], 0.8)
    assert (found.false_failures.count, found.false_passes.count) == (0, 0)


def test_scores_that_only_pass_or_fail_have_no_ranking():
    assert calibration_of([(1.0, True), (0.0, False)]).auc is None


@pytest.mark.parametrize(
    ("judged", "words"),
    [
        ([], "nothing was measured"),
        ([(None, True)] * 50, "nothing was measured"),
        ([(0.9, True)] * 50, "No wrong answers"),
        ([(0.9, False)] * 50, "No right answers"),
        ([(0.9, True), (0.1, False)], "Too few wrong answers"),
        ([(0.9, True)] * 50 + [(0.9, False)] * 50, "passes everything, all 50 wrong answers too"),
        ([(0.1, True)] * 50 + [(0.1, False)] * 50, "fails everything, all 50 right answers too"),
        (
            [(0.9, True)] * 30 + [(0.1, True)] * 20 + [(0.9, False)] * 28 + [(0.1, False)] * 22,
            "cannot be told from chance",
        ),
        ([(0.1, True)] * 45 + [(0.9, True)] * 5 + [(0.9, False)] * 45 + [(0.1, False)] * 5, "wrong answers more often"),
        ([(0.95, True)] * 50 + [(0.85, False)] * 50, "passes everything, all 50 wrong answers too"),
        ([(0.95, True)] * 50 + [(0.85, False)] * 50, "another threshold makes use of that"),
        ([(0.9, True)] * 50 + [(0.1, False)] * 50 + [(None, False)], "1 of 101 examples got no verdict"),
    ],
)
def test_what_forbids_to_rely_on_it_is_said(judged, words):
    assert any(words in note for note in calibration_of(judged).notes)


def test_a_good_evaluator_and_enough_examples_leave_nothing_to_say():
    assert calibration_of([(0.9, True)] * 50 + [(0.1, False)] * 48 + [(0.9, False)] * 2).notes == []


def test_so_many_examples_are_enough_whatever_they_say_and_fewer_are_not():
    widest = max(Rate(count, ENOUGH).width for count in range(ENOUGH + 1))
    assert widest <= WIDEST < max(Rate(count, ENOUGH - 1).width for count in range(ENOUGH))


@pytest.mark.parametrize(("judged", "threshold"), [([(1.5, True)], 0.8), ([(0.5, True)], 8)])
def test_another_scale_is_refused(judged, threshold):
    with pytest.raises(ValueError, match=r"0\.\.1"):
        calibration_of(judged, threshold)


@given(JUDGED, SCORES)
def test_every_verdict_is_counted_once(judged, threshold):
    found = calibration_of(judged, threshold)
    assert found.accuracy.count + found.false_passes.count + found.false_failures.count == found.accuracy.of
    assert found.accuracy.of + found.no_verdict.count == found.no_verdict.of == len(judged)
    assert found.false_passes.of + found.false_failures.of == sum(row.right.of for row in found.reliability)
    assert json.loads(json.dumps(found.as_json()))["threshold"] == threshold


@given(JUDGED)
def test_a_higher_threshold_never_adds_a_false_pass_nor_takes_a_false_failure(judged):
    points = calibration_of(judged).points
    for one, higher in pairwise(points):
        assert one.up_to < higher.threshold <= higher.up_to
        assert one.false_passes >= higher.false_passes
        assert one.false_failures <= higher.false_failures
    if points:
        assert (points[0].false_passes, points[0].false_failures) == (1.0, 0.0)


@given(JUDGED, SCORES)
def test_each_threshold_comes_to_what_its_point_says(judged, threshold):
    found = calibration_of(judged, threshold)
    for point in found.points:
        for at in (point.threshold, point.up_to):
            measured = calibration_of(judged, at)
            assert measured.false_passes.value == point.false_passes
            assert measured.false_failures.value == point.false_failures
    if found.points:
        here = next(point for point in found.points if threshold <= point.up_to)
        assert here.false_passes == found.false_passes.value
        assert here.false_failures == found.false_failures.value


@given(JUDGED)
def test_no_threshold_better_than_chance_is_nearer_to_balance(judged):
    found = calibration_of(judged)
    better = [point for point in found.points if point.false_passes + point.false_failures < 1]
    assert (found.balanced is None) == (not better)
    for point in better:
        nearest = abs(found.balanced.false_passes - found.balanced.false_failures)
        assert nearest <= abs(point.false_passes - point.false_failures)
