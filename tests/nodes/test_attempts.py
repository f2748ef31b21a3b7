"""Merging and comparing attempts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflexion.evaluators.passing import passes
from reflexion.nodes.attempts import KEPT_TEXT, best_attempt, merge_attempts, same_answer
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


def made(number, score, length):
    return {"number": number, "answer": f"{number}" * length, "plan": "", "style": "fresh", "score": score}


def merged(*attempts):
    kept = None
    for attempt in attempts:
        kept = merge_attempts(kept, [{name: value for name, value in attempt.items() if name != "score"}])
        kept = merge_attempts(kept, [{"number": attempt["number"], "score": attempt["score"]}])
    return kept


def test_of_long_answers_the_best_and_the_last_are_kept_as_a_whole():
    attempts = [made(number, score, KEPT_TEXT) for number, score in enumerate([0.2, 0.5, 0.4, 0.5, 0.1], 1)]
    kept = merged(*attempts)
    assert [attempt["number"] for attempt in kept if "digest" not in attempt] == [2, 5]
    assert (kept[1], kept[4]) == (attempts[1], attempts[4])
    assert all(len(kept[number]["answer"]) < 1_000 for number in (0, 2, 3))
    assert best_attempt(kept) == attempts[1]
    again = made(6, None, 0) | {"answer": attempts[2]["answer"]}
    assert same_answer(again, kept)["number"] == 3


def test_an_answer_that_was_not_kept_is_never_the_best_whatever_becomes_of_the_others():
    kept = merged(*(made(number, score, KEPT_TEXT) for number, score in enumerate([0.5, 0.4, 0.9, 1.0], 1)))
    assert [attempt["number"] for attempt in kept if "digest" not in attempt] == [3, 4]
    rejected = merge_attempts(kept, [{"number": number, "score": 0.0} for number in (3, 4)])
    assert best_attempt(rejected)["number"] == 3


def test_short_answers_beside_a_long_one_stay_as_they_are():
    attempts = [made(1, 0.1, 100), made(2, 0.5, 2 * KEPT_TEXT), made(3, 0.2, 1_000), made(4, 0.1, KEPT_TEXT)]
    assert merged(*attempts) == attempts


def test_long_verdicts_are_cut_and_a_short_answer_beside_them_is_not():
    verdict = {"feedback": "x" * KEPT_TEXT, "checks": ["y" * 1_000]}
    kept = merge_attempts(None, [made(number, 0.1, 100) | verdict for number in (1, 2, 3)])
    assert [len(attempt["feedback"]) for attempt in kept] == [KEPT_TEXT, 500, KEPT_TEXT]
    assert [len(attempt["checks"]) for attempt in kept] == [1, 0, 1]
    assert [len(attempt["answer"]) for attempt in kept] == [100, 100, 100]
    assert best_attempt(kept)["number"] == 1


def test_answers_of_usual_length_are_all_kept():
    attempts = [made(number, 0.1, KEPT_TEXT // 300) for number in range(1, 101)]
    assert merged(*attempts) == attempts


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
