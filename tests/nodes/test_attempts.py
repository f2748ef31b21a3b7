"""Merging and comparing attempts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflexion.evaluators.passing import passes
from reflexion.nodes.attempts import merge_attempts, same_answer
from reflexion.nodes.plain import plain

PARTS = st.lists(
    st.fixed_dictionaries({"number": st.integers(1, 5)}, optional={"answer": st.text(), "score": st.floats(0, 1)})
)


@settings(deadline=None)
@given(PARTS, PARTS)
def test_merging_a_delta_again_changes_nothing(old, new):
    once = merge_attempts(merge_attempts(None, old), new)
    assert merge_attempts(once, new) == once
    assert [attempt["number"] for attempt in once] == sorted({part["number"] for part in [*old, *new]})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a\nb", "a\n\nb  \n", True),
        ("if x:\n    a\n    b", "if x:\n    a\nb", False),
        ("A", "a", False),
        ("", " \n", True),
    ],
)
def test_the_same_answer_is_one_that_reads_and_runs_the_same(one, other, same):
    earlier = {"number": 1, "answer": one}
    assert (same_answer({"number": 2, "answer": other}, [earlier]) is earlier) is same


@pytest.mark.parametrize(
    ("score", "threshold", "passed"),
    [
        (7 / 10, 0.7, True),
        (0.1 + 0.7, 0.8, True),
        (0.79999, 0.8, False),
        (1.0, 1.0, True),
        (0.0, 0.0, True),
        (None, 0.0, False),
    ],
)
def test_the_threshold_is_reached_by_its_own_value(score, threshold, passed):
    assert passes(score, threshold) is passed


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
JSON = st.recursive(st.none() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


@settings(deadline=None)
@given(JSON)
def test_plain_text_is_kept_as_it_is(value):
    assert plain(value) == value


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_whatever_a_model_writes_can_be_stored(text):
    assert "\0" not in plain(text)
    plain(text).encode()
