"""A panel's verdict follows from its members', and the lack of one is never filled in."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators import Evaluation, Panel, Task
from reflexion.evaluators.panel import _majority
from reflexion.models import BudgetExhausted, DeadlineExceeded, ModelError

TASK = Task(text="Name a prime.")
ATTEMPT = {"number": 1, "answer": "7", "plan": "", "style": "first"}


class Fixed:
    def __init__(self, score, name="judge", *, error=None, advisory=False):
        self.name, self.calls, self._error = name, 0, error
        criteria = [{"name": "c", "score": score, "why": "w"}]
        self.verdict = Evaluation(
            score=score, feedback=f"f-{name}", checks=[f"check-{name}"], criteria=criteria, evaluator=name,
            advisory=advisory,
        )  # fmt: skip

    async def evaluate(self, task, attempt):
        self.calls += 1
        if self._error:
            raise self._error
        return self.verdict


@pytest.mark.parametrize(
    ("scores", "asked", "score"),
    [
        ([1, 1, 0.5], [1, 1, 1], 0.5),
        ([1, 0.5, 1], [1, 1, 0], 0.5),
        ([0, 1], [1, 0], 0),
        ([None, 1], [1, 0], None),
        ([1, None], [1, 1], None),
        ([0.3], [1], 0.3),
    ],
)
async def test_the_first_no_ends_it_and_the_rest_are_not_asked(scores, asked, score):
    judges = [Fixed(score) for score in scores]
    verdict = await Panel(judges).evaluate(TASK, ATTEMPT)
    assert verdict.score == score
    assert [judge.calls for judge in judges] == asked


async def test_the_last_one_asked_has_the_say_and_the_earlier_scores_are_kept():
    verdict = await Panel([Fixed(1, "tests"), Fixed(0.5, "critic", advisory=True)]).evaluate(TASK, ATTEMPT)
    assert (verdict.evaluator, verdict.feedback, verdict.advisory) == ("critic", "f-critic", True)
    assert list(verdict.checks) == ["check-critic"]
    assert [entry["name"] for entry in verdict.criteria] == ["tests", "tests: c", "c"]


@pytest.mark.parametrize(
    ("how", "scores", "weights", "score"),
    [
        ("minimum", [0.4, 0.9], None, 0.4),
        ("minimum", [0.4, None], None, None),
        ("minimum", [0, None], None, 0),
        ("mean", [0.4, 0.8], None, 0.6),
        ("mean", [0.4, 0.8], [1, 3], 0.7),
        ("mean", [0.4, None], [1, 3], None),
        ("majority", [1, 0.9, 0], None, 0.9),
        ("majority", [1, 0], None, 0),
        ("majority", [1, 0], [2, 1], 1),
        ("majority", [1, 0.2, 0.3], [2.5, 1, 1], 1),
        ("majority", [0.9, 0.9, None], None, 0.9),
        ("majority", [0.9, 0.1, None], None, None),
    ],
)
async def test_the_common_score(how, scores, weights, score):
    judges = [Fixed(score, f"j{number}") for number, score in enumerate(scores)]
    verdict = await Panel(judges, how, weights=weights).evaluate(TASK, ATTEMPT)
    assert verdict.score == (None if score is None else pytest.approx(score))
    assert [judge.calls for judge in judges] == [1] * len(judges)


async def test_what_the_members_say_is_kept_under_their_names():
    judges = [Fixed(0.5, "a"), Fixed(1, "b"), Fixed(0.2, "c", advisory=True)]
    verdict = await Panel(judges, "mean").evaluate(TASK, ATTEMPT)
    assert verdict.feedback == "a: f-a\nc: f-c"
    assert list(verdict.checks) == ["check-a", "check-b", "check-c"]
    assert [entry["name"] for entry in verdict.criteria] == ["a", "a: c", "b", "b: c", "c", "c: c"]
    assert (verdict.evaluator, verdict.advisory) == ("panel", False)


async def test_members_are_asked_at_the_same_time():
    met = asyncio.Barrier(2)

    async def meet(answer):
        await met.wait()
        return 1.0

    assert (await Panel([meet, meet], "minimum").evaluate(TASK, ATTEMPT)).score == 1


@pytest.mark.parametrize("how", ["first_no", "minimum", "mean", "majority"])
async def test_a_member_that_fails_is_no_verdict_with_its_reason(how):
    judges = [Fixed(1, "broken", error=RuntimeError("disk full"))]
    verdict = await Panel(judges, how).evaluate(TASK, ATTEMPT)
    assert verdict.score is None
    assert "broken failed: RuntimeError: disk full" in verdict.feedback


@pytest.mark.parametrize("how", ["first_no", "minimum", "mean", "majority"])
@pytest.mark.parametrize("end", [BudgetExhausted("b"), DeadlineExceeded("d"), ModelError("auth", "no")])
async def test_what_the_run_has_to_deal_with_reaches_it_and_nobody_is_left_running(how, end):
    judges = [Fixed(1, error=end), Fixed(1)]
    with pytest.raises(type(end)):
        await Panel(judges, how).evaluate(TASK, ATTEMPT)
    assert judges[1].calls == (how != "first_no")


async def test_an_evaluation_without_a_name_gets_its_members():
    def short(answer):
        return Evaluation(score=0.5, feedback="too long")

    assert (await Panel([short], "minimum").evaluate(TASK, ATTEMPT)).feedback == "short: too long"


async def test_functions_and_panels_can_be_members():
    inner = Panel([lambda answer: len(answer) == 1, lambda answer: 0.5], "mean")
    assert (await Panel([lambda answer: answer == "7", inner], "minimum").evaluate(TASK, ATTEMPT)).score == 0.75


@pytest.mark.parametrize(
    ("members", "how", "weights"),
    [
        ([], "first_no", None),
        ([Fixed(1)], "average", None),
        ([Fixed(1)], "mean", [1, 2]),
        ([Fixed(1)], "mean", [0]),
        ([Fixed(1)], "majority", [float("nan")]),
        ([Fixed(1)], "first_no", [1]),
        ([Fixed(1)], "minimum", [1]),
    ],
)
def test_a_panel_that_cannot_be_is_refused(members, how, weights):
    with pytest.raises(ValueError, match=r"panel|how|weights"):
        Panel(members, how, weights=weights)


@given(
    st.lists(st.tuples(st.sampled_from([0, 0.3, 0.6, 0.9, 1]), st.integers(1, 5)), min_size=1),
    st.sampled_from([0.3, 0.6, 1]),
)
def test_a_majority_passes_exactly_where_more_than_half_of_the_weight_does(members, threshold):
    scores, weights = zip(*members, strict=True)
    in_favour = sum(weight for score, weight in members if score >= threshold)
    assert (_majority(scores, weights) >= threshold) == (in_favour > sum(weights) / 2)
