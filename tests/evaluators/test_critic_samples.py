"""A critic is asked again only where that may change what its score means, and only while the run can pay."""

import pytest

from reflexion.evaluators import Task
from reflexion.evaluators.passing import passes
from reflexion.testing import Reply

TASK = Task(text="Name a prime.")
ATTEMPT = {"number": 1, "answer": "7", "plan": "", "style": "first"}


def verdicts(*scores):
    return [{"score": score, "weaknesses": f"w{score}"} for score in scores]


@pytest.mark.parametrize(
    ("scores", "threshold", "counts", "passed"),
    [
        ((6.2, 5.8, 6.1), 0.6, 0.61, True),
        ((6.2, 5.8, 5.9), 0.6, 0.59, False),
        ((7, 7, 7), 0.7, 0.7, True),
        ((8, 9, 2), 0.9, 0.8, False),
        ((6.2, 5.8), 0.6, 0.58, False),
        ((9,), 0.6, 0.9, True),
        ((2,), 0.8, 0.2, False),
    ],
)
async def test_the_median_counts_where_the_first_score_is_near_the_threshold(
    critic, server, scores, threshold, counts, passed
):
    server.script("critic-m", *verdicts(*scores))
    judge = critic(samples=max(2, len(scores)), threshold=threshold)
    verdict = await judge.evaluate(TASK, ATTEMPT)
    assert verdict.score == pytest.approx(counts)
    assert passes(verdict.score, threshold) is passed
    assert server.count == len(scores)
    kept = [sample["score"] for sample in verdict.criteria if sample["name"].startswith("sample ")]
    assert kept == pytest.approx([score / 10 for score in scores] if len(scores) > 1 else [])
    assert f"w{counts * 10:g}" in verdict.feedback


async def test_no_sample_is_a_repetition_of_the_same_request(critic, server):
    server.default("critic-m", {"score": 8})
    await critic(samples=4).evaluate(TASK, ATTEMPT)
    assert len({request.raw for request in server.requests}) == 4


async def test_by_default_it_is_asked_once(critic, server):
    server.default("critic-m", {"score": 8})
    verdict = await critic().evaluate(TASK, ATTEMPT)
    assert (server.count, verdict.criteria, verdict.feedback) == (1, [], "")


@pytest.mark.parametrize(
    ("further", "requests"),
    [
        (["nonsense", "more nonsense", *verdicts(9)], 4),
        ([Reply(status=401)], 2),
        ([*verdicts(9), Reply(status=401)], 3),
    ],
)
async def test_a_sample_that_cannot_be_had_does_not_cost_the_verdict(critic, server, further, requests):
    server.script("critic-m", *verdicts(8), *further)
    verdict = await critic(samples=3).evaluate(TASK, ATTEMPT)
    assert verdict.score == pytest.approx(0.8)
    assert server.count == requests


async def test_samples_stay_inside_the_budget(critic, server):
    server.default("critic-m", {"score": 8})
    verdict = await critic(samples=5, budget_requests=2).evaluate(TASK, ATTEMPT)
    assert verdict.score == 0.8
    assert server.count == 2
