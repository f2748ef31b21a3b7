"""A score is read without guessing, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators import Evaluation
from reflexion.evaluators.scores import ScoreError, read_score


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (8, 0.8),
        (8.5, 0.85),
        (1, 0.1),
        (10, 1.0),
        ("8", 0.8),
        ("8/10", 0.8),
        ("8 / 10", 0.8),
        ("8,5/10", 0.85),
        ("4/5", 0.8),
        ("0/10", 0.0),
        ("8 out of 10", 0.8),
        ("8 von 10", 0.8),
        ("I give it 8 out of 10.", 0.8),
        ("85%", 0.85),
        ("85 %", 0.85),
        ("4.0", 0.4),
        ("8,5", 0.85),
        ("[[8]]", 0.8),
        ("**8**", 0.8),
        ("Score: 8", 0.8),
        ("**Score:** 8.", 0.8),
        ("Final score is 8", 0.8),
        ("Punktzahl: 8", 0.8),
        ("8 points", 0.8),
        ({"value": 8}, 0.8),
        ({"Score": "8/10"}, 0.8),
    ],
)
def test_it_is_read(value, score):
    assert read_score(value) == pytest.approx(score)


@pytest.mark.parametrize(
    "value",
    [
        85, 0, 0.8, -5, 11, 10.01, float("nan"), float("inf"), 10**400, True, False, None, [], [8], [7, 9], {},
        {"scores": [7, 9]}, {"value": 8, "score": 9}, {"min": 1, "max": 10}, "85", "0.8", "0", "", "   ", "eight",
        "not excellent", "There are 5 reasons why this is a 9", "There are 5 reasons", "8 or 9", "8-9", "8–9", "7 9",
        "-8", "−8", "-8/10", "-85%", "85% of 20 tests", "10/8", "8/0", "8/10/2024", "150%", "1,000", "8.5.1", "v8",
        "8th", "8 out of 10, or 4 out of 5", "8/10 for style, 3 bugs", "1e1", "8 bugs", "score: high",
    ],
)  # fmt: skip
def test_it_is_refused(value):
    with pytest.raises(ScoreError):
        read_score(value)


@given(st.floats(1, 10))
def test_every_number_on_the_scale_is_its_share(number):
    assert read_score(number) == number / 10
    assert read_score(f"{number:.6f}") == pytest.approx(number / 10, abs=1e-6)


@given(st.integers() | st.floats() | st.text() | st.text("0123456789.,/%- of"))
def test_whatever_comes_is_within_bounds_or_refused(value):
    try:
        score = read_score(value)
    except ScoreError:
        return
    assert 0 <= score <= 1


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_denominator_is_taken_at_its_word(part, whole):
    if part > whole:
        with pytest.raises(ScoreError):
            read_score(f"{part}/{whole}")
    else:
        assert read_score(f"{part}/{whole}") == part / whole


@pytest.mark.parametrize("score", [-0.1, 1.1, 7, float("nan")])
def test_an_evaluation_is_on_one_scale_only(score):
    with pytest.raises(ValueError, match="outside"):
        Evaluation(score=score)


@pytest.mark.parametrize("score", [None, 0, 0.7, 1])
def test_no_verdict_is_an_evaluation_too(score):
    assert Evaluation(score=score).score == score
