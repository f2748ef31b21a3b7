"""A rubric's criteria are each judged once, and what they weigh together is worked out here, not by a model."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators import Criterion, CriterionError, Rubric, Task
from reflexion.evaluators.verdict import Judged

ATTEMPT = {"number": 1, "answer": "7", "plan": "", "style": "first"}
CRITERIA = ["correct (weight 3): The result is right.", "It is short."]
TASK = Task(text="Name a prime.", criteria=CRITERIA)


def reply(correct, short, score, **more):
    entries = [{"name": "correct", "score": correct, "why": "c"}, {"name": "It is short.", "score": short, "why": "s"}]
    return {"criteria": entries, "score": score, **more}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("It is short.", ("It is short.", "", 1)),
        ("correct (weight 3): The result is right.", ("correct", "The result is right.", 3)),
        ("The result is right. (weight 2.5)", ("The result is right.", "", 2.5)),
        ("2: covers X", ("2: covers X", "", 1)),
        ("names the weight (in kg): twice", ("names the weight (in kg): twice", "", 1)),
    ],
)
def test_a_criterion_is_a_text_with_parts(text, parts):
    criterion = Criterion.read(text)
    assert (criterion.name, criterion.text, criterion.weight) == parts
    assert Criterion(*parts) == criterion == text
    assert json.dumps([criterion]) == json.dumps([text])


@given(st.text(), st.text(), st.floats(0.001, 1000))
def test_what_a_criterion_is_written_as_reads_as_the_same(name, text, weight):
    try:
        criterion = Criterion(name, text, weight)
    except CriterionError:
        return
    again = Criterion.read(str(criterion))
    assert str(again) == str(criterion)


@pytest.mark.parametrize(
    "criteria",
    [
        [""],
        ["  "],
        ["?!"],
        ["x (weight high): y"],
        ["x (weight 0)"],
        ["x (weight -1)"],
        ["x (weight inf)"],
        ["Short.", "short"],
    ],
)
async def test_a_rubric_that_cannot_be_read_is_refused_and_no_verdict(critic, server, criteria):
    with pytest.raises(CriterionError):
        Rubric.read(criteria)
    verdict = await critic().evaluate(Task(text="x", criteria=criteria), ATTEMPT)
    assert verdict.score is None
    assert server.count == 0


async def test_the_score_is_the_weighted_mean_of_the_criteria_not_the_models_own(critic, server):
    server.default("critic-m", reply(10, 2, 6))
    verdict = await critic().evaluate(TASK, ATTEMPT)
    assert verdict.score == pytest.approx((3 * 1.0 + 0.2) / 4)
    assert verdict.criteria == [
        {"name": "correct", "score": 1.0, "why": "c"},
        {"name": "It is short.", "score": 0.2, "why": "s"},
    ]
    assert verdict.checks == ["It is short."]
    system = server.requests[0].body["messages"][0]["content"]
    assert "1. correct: The result is right. (weight 3)\n2. It is short. (weight 1)" in system


@pytest.mark.parametrize("names", [("1", "2"), ("Correct", "it is SHORT"), ("1. correct", "2) It is short."),
                                   ("The result is right", "It is short")])  # fmt: skip
async def test_a_criterion_is_known_by_number_name_or_text(critic, server, names):
    entries = [{"name": name, "score": score} for name, score in zip(reversed(names), (2, 10), strict=True)]
    server.default("critic-m", {"criteria": entries, "score": 7})
    verdict = await critic().evaluate(TASK, ATTEMPT)
    assert [criterion["score"] for criterion in verdict.criteria] == [1.0, 0.2]


async def test_criteria_as_a_mapping_are_understood(critic, server):
    server.default("critic-m", {"criteria": {"correct": {"score": 9, "why": "x"}, "It is short.": 5}, "score": 8})
    assert (await critic().evaluate(TASK, ATTEMPT)).score == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"criteria": [*reply(8, 8, 8)["criteria"], {"name": "correct", "score": 3}], "score": 8}, "judged twice"),
        (reply(10, 10, 4), "contradicts its own criteria"),
        (reply(2, 2, 9), "contradicts its own criteria"),
        (reply(8, 8, None, reasoning="unclear"), "although criteria have scores"),
    ],
)
async def test_a_contradiction_is_asked_about_once_and_then_no_verdict(critic, server, wrong, told):
    server.script("critic-m", json.dumps(wrong), reply(8, 8, 8))
    assert (await critic().evaluate(TASK, ATTEMPT)).score == pytest.approx(0.8)
    assert told in server.requests[1].body["messages"][-1]["content"]
    server.default("critic-m", json.dumps(wrong))
    verdict = await critic().evaluate(TASK, ATTEMPT)
    assert verdict.score is None
    assert told in verdict.feedback
    assert server.count == 4


@pytest.mark.parametrize("criteria", [["It is short."], TASK.criteria])
@pytest.mark.parametrize(
    "judged",
    [None, [], [{"name": "style", "score": 2}], [{"name": "correct", "score": 9}], reply("high", 9, 8)["criteria"]],
)
async def test_the_overall_score_is_enough_where_not_every_criterion_has_one(critic, server, criteria, judged):
    server.default("critic-m", {"score": 8, "criteria": judged})
    assert (await critic().evaluate(Task(text="x", criteria=criteria), ATTEMPT)).score == 0.8
    assert server.count == 1


@given(st.lists(st.tuples(st.floats(0.1, 10), st.integers(1, 10)), min_size=2, max_size=6))
def test_the_mean_lies_between_the_scores(judged):
    rubric = Rubric.read(f"c{number} (weight {weight!r})" for number, (weight, _) in enumerate(judged))
    mean = rubric.mean(score / 10 for _, score in judged)
    entries = [{"name": f"c{number}", "score": score} for number, (_, score) in enumerate(judged)]
    verdict = Judged.model_validate({"criteria": entries, "score": max(1.0, mean * 10)}, context=rubric)
    assert verdict.score == mean
    assert min(s for _, s in judged) / 10 - 1e-9 <= mean <= max(s for _, s in judged) / 10 + 1e-9
