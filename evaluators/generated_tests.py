"""Tests that the model writes itself, from the task alone, and that are checked before they count.

As in Reflexion (Shinn et al. 2023), except for the checking. Passing them is never proof: the verdict is advisory.
"""

import asyncio
import copy
from collections.abc import Sequence

from reflexion.evaluators.code import extract_code
from reflexion.evaluators.own_tests import MOST_USED, Outcome, OwnTest, OwnTests, counted, from_task, read_tests
from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.evaluators.task_text import examples, function_asked_for
from reflexion.evaluators.unit_tests import evaluation_of, told
from reflexion.evaluators.validation import program, reject_by_agreement, validate
from reflexion.models import Completer, Meter
from reflexion.models.errors import ModelError
from reflexion.prompts import Language, Marks, PromptBook
from reflexion.sandbox import Limits, TestResult, judge

EMBEDDED_REPLY = 320
"""Tokens of the embedded model's reply; it goes on and on, and ten short asserts are fewer."""


MOST_EXAMPLES = 20
"""Examples of a task that are run."""


async def write_tests(
    text: str, client: Completer, meter: Meter, prompts: PromptBook, lang: Language, limits: Limits
) -> OwnTests:
    """Ask a model for tests of a task, once, and check them.

    Returns:
        All that it wrote, the rejected ones with their reason, after the examples that stand in the task. Nothing is
        asked for a task that names no function.

    Raises:
        ModelError: the endpoint failed. A refusal is no tests instead.
    """
    function = function_asked_for(text)
    if function is None:
        return OwnTests(function="", tests=[], problem="the task names no function")
    prompt = prompts.get("tester", lang)
    messages = prompt.messages(task=Marks().around("task", text), function=function, most=str(MOST_USED))
    try:
        temperature, longest = (0.0, EMBEDDED_REPLY) if client.embedded else (None, None)
        reply = await client.complete(messages, meter, temperature=temperature, max_tokens=longest)
    except ModelError as error:
        if error.kind not in {"refused", "content_filter"}:
            raise
        own = await checked_tests(text, function, "", limits)
        own["problem"] = own["problem"] and f"the model wrote none: {error}"
        return own
    return await checked_tests(text, function, reply.text, limits)


async def checked_tests(text: str, function: str, reply: str, limits: Limits) -> OwnTests:
    """The tests in a model's reply and in the task itself, each rejected that is not worth believing.

    Args:
        text: the task.
        function: what is to be tested.
        reply: the model's.
        limits: of the one judgement that it takes.
    """
    known = (await asyncio.to_thread(examples, text, function))[:MOST_EXAMPLES]
    stated = [from_task(example) for example in known]
    sources = {test["source"] for test in stated}
    written = [test for test in await asyncio.to_thread(read_tests, reply, function) if test["source"] not in sources]
    own = OwnTests(function=function, tests=[*stated, *written], problem="")
    if any(test["origin"] == "model" for test in counted(own)):
        own["problem"] = await validate(own, known, limits)
    if not counted(own):
        own["problem"] = own["problem"] or "none of the tests that the model wrote can be used"
    return own


class GeneratedTests:
    """Judges by tests that a model wrote itself.

    Args:
        own: the run's tests with what earlier attempts did on them; see `write_tests`. It is not changed.
        limits: time, memory and output of one judgement.
    """

    name = "generated_tests"

    def __init__(self, own: OwnTests, limits: Limits = Limits()) -> None:  # noqa: B008 - it is immutable
        self.own = copy.deepcopy(own)
        """The tests with what the judged attempts did on them, for the run's next attempt."""
        self.reconsidered: dict[int, Evaluation] = {}
        """New verdicts on earlier attempts, by number, where the last one has shown that a test is wrong."""
        self._limits = limits

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge one attempt; afterwards `own` and `reconsidered` are up to date.

        Returns:
            An advisory score: the share of the tests that count and are passed. None where the sandbox is at fault.
        """
        code = await asyncio.to_thread(extract_code, attempt["answer"])
        tests = counted(self.own)
        source = program([test["source"] for test in tests])
        verdict = await judge(code, source, entry=self.own["function"], limits=self._limits)
        if verdict.state != "ran":
            failed = evaluation_of(verdict)
            return _advisory(failed.score, failed.feedback, [])
        for test, result in zip(tests, verdict.results, strict=True):
            test["outcomes"][str(attempt["number"])] = _outcome(result)
        if reject_by_agreement(self.own):
            before = {int(number) for number in tests[0]["outcomes"]} - {attempt["number"]}
            self.reconsidered = {number: verdict_on(self.own, number) for number in before}
        return verdict_on(self.own, attempt["number"])


def verdict_on(own: OwnTests, number: int) -> Evaluation:
    """The verdict on an attempt, by the tests that still count."""
    tests = counted(own)
    failed = [(test, test["outcomes"][str(number)]) for test in tests if not test["outcomes"][str(number)]["passed"]]
    summary = describe(own, [test for test, _ in failed])
    lines = [f"- {_statement(test)}: {outcome['told']}" for test, outcome in failed]
    checks = [_statement(test) for test, _ in failed]
    return _advisory((len(tests) - len(failed)) / len(tests), "\n".join([summary, *lines]), checks)


def describe(own: OwnTests, failed: Sequence[OwnTest]) -> str:
    """A sentence on where the tests come from and how many of them an attempt passes."""
    by_model = [test for test in counted(own) if test["origin"] == "model"]
    by_task = [test for test in counted(own) if test["origin"] == "task"]
    rejected = sum(bool(test["rejected"]) for test in own["tests"])
    parts = [f"{_passed(by_model, failed)} tests that the model wrote itself, {rejected} rejected"] if by_model else []
    if by_task:
        parts.append(f"{_passed(by_task, failed)} examples of the task")
    if not by_model:
        parts.append(f"no test that the model wrote itself, {rejected} rejected")
    return f"Passed {'; '.join(parts)}."


def _passed(tests: Sequence[OwnTest], failed: Sequence[OwnTest]) -> str:
    return f"{sum(test not in failed for test in tests)} of {len(tests)}"


def _advisory(score: float | None, feedback: str, checks: Sequence[str]) -> Evaluation:
    return Evaluation(
        score=score, feedback=feedback, checks=tuple(checks), evaluator=GeneratedTests.name, advisory=True
    )


def _statement(test: OwnTest) -> str:
    return test["source"].removeprefix("assert ")


def _outcome(result: TestResult) -> Outcome:
    # A shortened value may hide a difference.
    comparable = bool(result.wanted) and " … " not in result.got
    return Outcome(passed=result.passed, got=result.got if comparable else "", told=told(result))
