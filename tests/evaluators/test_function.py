"""Any function can judge: the user's own, openevals' or LangSmith's as it is."""

import math
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import pytest
from langgraph.errors import GraphInterrupt

from reflexion.evaluators import Evaluation, Function, Match, Task, as_evaluator

TASK = Task(text="double 21", expect="42")
ATTEMPT = {"number": 1, "answer": "42", "plan": "", "style": "first"}


async def judge(function):
    return await as_evaluator(function).evaluate(TASK, ATTEMPT)


def sync(answer):
    return answer == "42"


async def asynchronous(answer):
    return answer == "42"


class Callable:
    def __call__(self, answer):
        return answer == "42"


class AsyncCallable:
    async def __call__(self, answer):
        return answer == "42"

    async def method(self, answer):
        return answer == "42"


async def with_more(answer, wanted, *, strict=True):
    return answer == wanted and strict


def openevals_style(*, inputs=None, outputs=None, reference_outputs=None, **kwargs):
    right = outputs == reference_outputs and inputs == {"task": "double 21"} and not kwargs
    return {"key": "exact_match", "score": right, "comment": None, "metadata": None}


def langsmith_style(run, example):
    return {"key": "right", "score": run.outputs["answer"] == example.outputs["answer"]}


def takes_anything(**kwargs):
    return kwargs["outputs"]["answer"] == "42"


def positional_only(answer, /):
    return answer == "42"


def task_and_attempt(given, made):
    return given.text == "double 21" and made["answer"] == "42"


@pytest.mark.parametrize(
    "function",
    [
        sync,
        asynchronous,
        Callable(),
        AsyncCallable(),
        AsyncCallable().method,
        partial(with_more, wanted="42"),
        partial(lambda wanted, answer: answer == wanted, "42"),
        lambda text: text == "42",
        lambda task, attempt: task.expect == attempt["answer"],
        lambda text, *rest, **more: text == "42",
        lambda text, strict=True: text == "42" and strict,
        task_and_attempt,
        openevals_style,
        langsmith_style,
        takes_anything,
        positional_only,
        "42".__eq__,
        lambda outputs, reference_outputs: outputs == reference_outputs,
        lambda attempt: attempt["number"] == 1,
        lambda answer, extra=0: asynchronous(answer),
    ],
)
async def test_it_is_called_with_what_it_asks_for(function):
    verdict = await judge(function)
    assert (verdict.score, verdict.feedback) == (1.0, "")


@pytest.mark.parametrize(
    ("returned", "score", "feedback"),
    [
        (True, 1.0, ""),
        (False, 0.0, ""),
        (0.7, 0.7, ""),
        (1, 1.0, ""),
        (Decimal("0.5"), 0.5, ""),
        ({"score": 0.5, "comment": "half"}, 0.5, "half"),
        ({"score": True, "reasoning": "why"}, 1.0, "why"),
        ({"score": None, "comment": "cannot say"}, None, "cannot say"),
        ([{"key": "k", "score": 0.5}], 0.5, ""),
        (SimpleNamespace(score=0.5, comment="half"), 0.5, "half"),
    ],
)
async def test_its_verdict_is_read(returned, score, feedback):
    verdict = await judge(lambda answer: returned)
    assert (verdict.score, verdict.feedback) == (score, feedback)


async def test_an_evaluation_comes_back_as_it_is():
    given = Evaluation(score=0.3, feedback="f", checks=["c"], evaluator="mine")
    assert await judge(lambda answer: given) is given


@pytest.mark.parametrize(
    "returned",
    [None, 2, -0.1, 8.0, math.nan, "1", "yes", [], [0.5, 0.6], {}, {"score": "8/10"}, {"score": 8}, object()],
)
async def test_anything_else_is_no_verdict_and_says_why(returned):
    verdict = await judge(lambda answer: returned)
    assert verdict.score is None
    assert "failed" in verdict.feedback


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_exception_is_no_verdict_and_shows_no_key(is_async):
    def fails(answer):
        raise RuntimeError("no access with sk-test-123456")

    async def fails_later(answer):
        fails(answer)

    verdict = await judge(fails_later if is_async else fails)
    assert verdict.score is None
    assert "RuntimeError: no access with [key]" in verdict.feedback


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_may_interrupt_the_graph_to_ask_somebody(is_async):
    def asks(answer):
        raise GraphInterrupt

    async def asks_later(answer):
        asks(answer)

    with pytest.raises(GraphInterrupt):
        await judge(asks_later if is_async else asks)


def test_names_are_those_that_people_know():
    names = [Function(f).name for f in (sync, Callable(), partial(with_more, wanted="x"), partial(Callable()))]
    assert names == ["sync", "Callable", "with_more", "Callable"]
    assert Function(sync, "mine").name == "mine"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: True,
        lambda one, two, three: True,
        lambda answer, threshold: True,
        lambda *, text: True,
        Callable,
        Match,
        42,
        "text",
    ],
)
def test_what_cannot_be_called_is_refused_before_anything_is_paid_for(wrong):
    with pytest.raises(TypeError):
        as_evaluator(wrong)


def test_an_evaluator_is_one_already():
    evaluator = Match()
    assert as_evaluator(evaluator) is evaluator
