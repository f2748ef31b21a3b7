"""Calibrating from Python: any evaluator, and everything through the same seam."""

import asyncio

import pytest

from reflexion.evaluators import Evaluation
from reflexion.graphs import ConfigurationError, Settings, calibrate, make_example
from reflexion.memory import open_persistence
from reflexion.models import ConnectionSettings
from reflexion.testing import FakeOpenAI

EXAMPLES = [
    make_example("Say yes.", answer, truth, id=answer)
    for answer, truth in [("yes", True), ("Yes!", True), ("no", False), ("yes, no", False)]
]


async def measured(evaluator, examples=EXAMPLES, **given):
    return await calibrate(examples, evaluator=evaluator, database_url="memory://", **given)


async def test_a_function_of_ones_own_is_calibrated_without_any_model():
    report = await measured(lambda answer: "yes" in answer.lower())
    assert [verdict.passed for verdict in report.verdicts] == [True, True, False, True]
    assert report.calibration.false_passes.count == 1
    assert report.calibration.false_failures.count == 0
    assert report.usage.requests == 0
    assert list(report.evaluators.values()) == [4]


async def test_an_evaluator_that_raises_or_returns_nonsense_gives_no_verdict_on_that_one():
    class Odd:
        async def evaluate(self, task, attempt):
            if attempt["answer"] == "no":
                raise ZeroDivisionError
            return "fine" if "!" in attempt["answer"] else Evaluation(score=1.0, evaluator="odd")

    report = await measured(Odd())
    assert [verdict.score for verdict in report.verdicts] == [1.0, None, None, 1.0]
    assert "ZeroDivisionError" in report.verdicts[2].feedback
    assert report.calibration.no_verdict.count == 2


async def test_no_more_are_judged_at_once_than_asked_for():
    now, most = 0, 0

    async def counting(answer):
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return True

    await measured(counting, concurrency=2)
    assert most == 2


async def test_it_is_stopped_with_what_is_finished():
    stop = asyncio.Event()

    async def second_never_ends(answer):
        if answer == "Yes!":
            stop.set()
            await asyncio.Event().wait()
        return True

    report = await measured(second_never_ends, concurrency=1, stop=stop)
    assert [verdict.id for verdict in report.verdicts] == ["yes"]
    assert (report.stop_reason, report.examples) == ("cancelled", 4)
    assert "3 of 4 examples were not judged" in report.notes[0]


async def test_a_deadline_holds_for_the_whole():
    async def for_ever(answer):
        await asyncio.Event().wait()

    report = await measured(for_ever, settings=Settings(deadline_s=0.05))
    assert (report.stop_reason, len(report.verdicts)) == ("deadline", 0)


async def test_cancelling_the_caller_ends_the_work():
    started, ended = asyncio.Event(), asyncio.Event()

    async def for_ever(answer):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    work = asyncio.create_task(measured(for_ever, concurrency=1))
    await started.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended.is_set()


async def test_each_request_is_a_line_of_the_ledger(sqlite_url):
    async with FakeOpenAI() as server:
        server.default("m", {"score": 9})
        connection = ConnectionSettings(base_url=server.base_url, api_key="any")
        report = await calibrate(EXAMPLES, Settings(model="m"), connection=connection, database_url=sqlite_url)
    async with open_persistence(sqlite_url) as persistence:
        lines = await persistence.ledger.lines(batch_id=report.calibration_id)
    assert [line["role"] for line in lines] == ["evaluator"] * 4
    assert sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines) == report.usage.tokens > 0


async def test_tests_that_the_model_writes_are_calibrated_where_a_run_would_use_them():
    task = "Write double(n), which gives twice n."
    answers = {"def double(n): return n * 2": True, "def double(n): return n * 3": False}
    examples = [make_example(task, answer, truth) for answer, truth in answers.items()]
    async with FakeOpenAI() as server:
        server.default("m", "assert double(2) == 4\nassert double(5) == 10")
        report = await calibrate(
            examples,
            Settings(model="m", generate_tests=True, test_timeout_s=60),
            connection=ConnectionSettings(base_url=server.base_url, api_key="any"),
            database_url="memory://",
        )
    assert report.evaluators == {"generated_tests": 2}
    assert [verdict.score for verdict in report.verdicts] == [1, 0]
    assert "Scores of generated_tests are advisory here: a run learns nothing by them." in report.notes


async def test_no_concurrency_is_refused():
    with pytest.raises(ConfigurationError, match="concurrency 0"):
        await measured(lambda answer: True, concurrency=0)
