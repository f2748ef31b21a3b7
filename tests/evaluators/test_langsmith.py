"""Our evaluators for LangSmith, and those of LangSmith and openevals for us."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from langchain_openai import ChatOpenAI
from langsmith.evaluation import EvaluationResult, RunEvaluator, run_evaluator
from langsmith.evaluation.evaluator import DynamicRunEvaluator
from langsmith.schemas import Example, Run
from openevals.exact import exact_match, exact_match_async
from openevals.llm import create_async_llm_as_judge, create_llm_as_judge
from openevals.string.levenshtein import levenshtein_distance, levenshtein_distance_async

from reflexion.evaluators import Evaluation, Match, Task, UnitTests, as_evaluator, as_langsmith_evaluator
from reflexion.evaluators.langsmith import criterion_keys
from reflexion.testing import Reply

TASK = Task(text="Double 21.", expect="42")


def attempt(answer):
    return {"number": 1, "answer": answer, "plan": "", "style": "first"}


def a_run(outputs, error=None):
    return Run(
        id=uuid4(), name="x", start_time=datetime.now(UTC), run_type="chain", inputs={}, outputs=outputs, error=error
    )


def an_example(inputs, outputs=None):
    return Example(id=uuid4(), inputs=inputs, outputs=outputs)


async def feedback(evaluator, outputs, inputs, reference=None, name=None, error=None):
    """What LangSmith makes of an evaluator of ours."""
    theirs = DynamicRunEvaluator(as_langsmith_evaluator(evaluator, name))
    given = await theirs.aevaluate_run(a_run(outputs, error), an_example(inputs, reference))
    return [(result.key, result.score, result.comment) for result in given["results"]]


@pytest.mark.parametrize(
    ("inputs", "reference"),
    [
        ({"task": "Double 21."}, {"expect": "42"}),
        ({"task": "Double 21.", "expect": "42"}, {}),
        ({"task": "Double 21.", "source": "web"}, {"answer": "42"}),
        ({"question": "Double 21."}, {"output": "42"}),
        ({"question": "Double 21.", "level": 3}, {"number": 42, "criteria": ["short"]}),
    ],
)
async def test_an_example_is_read_as_a_task(inputs, reference):
    assert (await feedback(Match(), {"answer": "42"}, inputs, reference))[0][:2] == ("match", 1.0)
    assert (await feedback(Match(), {"answer": "41"}, inputs, reference))[0][:2] == ("match", 0.0)


@pytest.mark.parametrize("outputs", [{"answer": "42", "why": "x"}, {"output": "42"}, {"text": "42", "tokens": 3}])
async def test_the_answer_is_read_off_the_outputs(outputs):
    assert (await feedback(Match(), outputs, {"task": "t"}, {"expect": "42"}))[0][:2] == ("match", 1.0)


async def test_tests_may_stand_in_the_reference():
    reference = {"tests": "assert double(2) == 4\nassert double(3) == 7"}
    code = "```python\ndef double(n):\n    return 2 * n\n```"
    ((key, score, comment),) = await feedback(UnitTests(), {"answer": code}, {"task": "Write double."}, reference)
    assert (key, score) == ("unit_tests", 0.5)
    assert "double(3) == 7" in comment


async def test_the_reference_judges_and_not_what_the_agent_was_shown():
    inputs = {"task": "Write double.", "tests": "assert double(0) == 0", "expect": "0"}
    code = "```python\ndef double(n):\n    return 0\n```"
    reference = {"tests": "assert double(2) == 4", "answer": "4"}
    assert (await feedback(UnitTests(), {"answer": code}, inputs, reference))[0][:2] == ("unit_tests", 0.0)
    assert (await feedback(Match(), {"answer": "4"}, inputs, reference))[0][:2] == ("match", 1.0)


async def test_criteria_are_scores_of_their_own(critic, server):
    server.script(
        "critic-m",
        {
            "score": 7,
            "weaknesses": "dull",
            "criteria": [
                {"name": "short", "score": 10, "why": "two words"},
                {"name": "lively", "score": 4, "why": "flat"},
            ],
        },
    )
    given = await feedback(
        critic(), {"answer": "a sea"}, {"task": "Describe the sea.", "criteria": ["short", "lively"]}
    )
    assert [(key, score) for key, score, _ in given] == [
        ("critic", 0.7),
        ("criterion_short", 1.0),
        ("criterion_lively", 0.4),
    ]
    assert [comment for _, _, comment in given][1:] == ["two words", "flat"]


def broken(answer):
    raise OSError("disk full")


class Raising:
    name = "raising"

    async def evaluate(self, task, attempt):
        raise OSError("disk full")


@pytest.mark.parametrize(
    ("evaluator", "outputs", "inputs", "error", "why"),
    [
        (broken, {"answer": "x"}, {"task": "t"}, None, "disk full"),
        (Raising(), {"answer": "x"}, {"task": "t"}, None, "disk full"),
        (lambda answer: None, {"answer": "x"}, {"task": "t"}, None, "no verdict"),
        (Match(), {}, {"task": "t"}, None, "outputs need a text"),
        (Match(), {"a": "x", "b": "y"}, {"task": "t"}, None, "outputs need a text"),
        (Match(), {"answer": "x"}, {"a": "x", "b": "y"}, None, "inputs need a text"),
        (Match(), None, {"task": "t"}, "timed out", "timed out"),
    ],
)
async def test_no_verdict_is_no_score_and_a_reason(evaluator, outputs, inputs, error, why):
    ((_, score, comment),) = await feedback(evaluator, outputs, inputs, {"expect": "x"}, error=error)
    assert score is None
    assert why in comment


async def test_a_name_may_be_given():
    assert (await feedback(lambda answer: 0.5, {"answer": "x"}, {"task": "t"}, name="mine"))[0] == ("mine", 0.5, "")
    assert as_langsmith_evaluator(broken).__name__ == "broken"


# The other way round.


async def verdict(theirs, answer="42"):
    return await as_evaluator(theirs).evaluate(TASK, attempt(answer))


@pytest.mark.parametrize("theirs", [exact_match, exact_match_async, levenshtein_distance, levenshtein_distance_async])
async def test_evaluators_of_openevals_judge(theirs):
    assert (await verdict(theirs)).score == 1.0
    assert (await verdict(theirs, "nothing like it")).score < 0.9
    without = await as_evaluator(theirs).evaluate(Task(text="t"), attempt("42"))
    assert without.score is None
    assert "reference_outputs" in without.feedback


@pytest.mark.parametrize("create", [create_llm_as_judge, create_async_llm_as_judge])
@pytest.mark.parametrize(("continuous", "said", "score"), [(False, True, 1.0), (False, False, 0.0), (True, 0.6, 0.6)])
async def test_a_model_as_judge_of_openevals_judges(server, create, continuous, said, score):
    server.default("judge-m", {"reasoning": "because", "score": said})
    model = ChatOpenAI(model="judge-m", base_url=server.base_url, api_key="any", max_retries=0)
    judge = create(
        prompt="Task {inputs}, answer {outputs}, right {reference_outputs}",
        judge=model,
        continuous=continuous,
        structured_output_kwargs={"method": "json_schema"},
    )
    given = await verdict(judge)
    assert (given.score, given.feedback) == (score, "because")
    (asked,) = server.requests
    assert all(part in str(asked.body["messages"]) for part in ("Double 21.", "42"))


async def test_a_judge_whose_model_is_down_gives_no_verdict(server):
    server.default("judge-m", Reply(status=500))
    model = ChatOpenAI(model="judge-m", base_url=server.base_url, api_key="any", max_retries=0)
    assert (await verdict(create_async_llm_as_judge(prompt="{outputs}", judge=model))).score is None


def by_run(run, example):
    assert run.id
    assert example.id
    return {"key": "right", "score": run.outputs["answer"] == example.outputs["answer"], "comment": "compared"}


@run_evaluator
def decorated(run, example):
    return EvaluationResult(**by_run(run, example))


@run_evaluator
async def decorated_async(run, example):
    return by_run(run, example)


@run_evaluator
def by_parts(inputs, outputs, reference_outputs):
    return {"score": outputs == reference_outputs, "comment": "compared"}


class Subclass(RunEvaluator):
    def evaluate_run(self, run, example=None, evaluator_run_id=None):
        return EvaluationResult(**by_run(run, example))


@pytest.mark.parametrize(
    ("theirs", "name"),
    [
        (by_run, "by_run"),
        (decorated, "decorated"),
        (decorated_async, "decorated_async"),
        (by_parts, "by_parts"),
        (Subclass(), "Subclass"),
    ],
)
async def test_evaluators_of_langsmith_judge(theirs, name):
    right, wrong = await verdict(theirs), await verdict(theirs, "41")
    assert (right.score, right.feedback, right.evaluator) == (1.0, "compared", name)
    assert wrong.score == 0.0


@pytest.mark.parametrize("form", [lambda results: results, lambda results: {"results": results}])
async def test_of_several_results_the_lowest_is_the_score_and_each_a_criterion(form):
    results = [
        {"key": "right", "score": True},
        EvaluationResult(key="short", score=0.4, comment="long"),
        {"key": "mood", "score": None, "comment": "cannot say"},
    ]
    given = await verdict(lambda outputs: form(results))
    assert (given.score, given.feedback) == (0.4, "short: long\nmood: cannot say")
    assert [(c["name"], c["score"]) for c in given.criteria] == [("right", 1.0), ("short", 0.4), ("mood", None)]


async def test_our_evaluator_is_the_same_after_a_journey_through_langsmith():
    theirs = run_evaluator(as_langsmith_evaluator(lambda answer: Evaluation(score=0.3, feedback="f"), "mine"))
    given = await verdict(theirs)
    assert (given.score, given.feedback) == (0.3, "f")


def test_criteria_have_keys_of_their_own():
    long = "It handles " + "very " * 20
    assert criterion_keys(["A b!", "a, b", "?", long + "x", long + "y"]) == [
        "criterion_a_b",
        "criterion_a_b_2",
        "criterion_3",
        f"criterion_it_handles_{'very_' * 20}"[:70],
        f"criterion_it_handles_{'very_' * 20}"[:70] + "_5",
    ]
    assert len(set(criterion_keys(["a", "a 3", "a"]))) == 3
    assert criterion_keys(["A", "B"], hidden=True) == ["criterion_1", "criterion_2"]
