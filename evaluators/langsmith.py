"""LangSmith's side of an evaluator: what `langsmith.evaluate` calls, and how an example is read as a task."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from langsmith.schemas import Example, Run

from reflexion.evaluators.function import as_evaluator
from reflexion.evaluators.records import Attempt, Evaluation, Evaluator, Task
from reflexion.models import scrub

_NOT_TEXT = {"tests", "expect", "criteria"}
_LONGEST_KEY = 60
"""Characters of a criterion's name in a feedback's key."""

Judge = Callable[[Run, Example | None], Awaitable[dict[str, Any]]]
"""What `evaluators=[…]` of `langsmith.aevaluate` and `langsmith.evaluate` takes."""


def as_langsmith_evaluator(evaluator: Evaluator | Callable[..., Any], name: str | None = None) -> Judge:
    """An evaluator of ours, or any function that can be one, for `langsmith.evaluate` and `aevaluate`.

    Its feedback is a score in 0..1 with the evaluator's feedback as comment, and one more per criterion. Without
    a verdict the score is None, and the comment says why.

    Args:
        evaluator: see `as_evaluator`.
        name: the feedback's key; None for the name under which the evaluator gave its verdict.

    Raises:
        TypeError: it cannot be an evaluator.
    """
    ours = as_evaluator(evaluator)
    known_as = name or str(getattr(ours, "name", type(ours).__name__))

    async def judge(run: Run, example: Example | None) -> dict[str, Any]:
        verdict = await _verdict(ours, run, example)
        first = {"key": name or verdict.evaluator or known_as, "score": verdict.score, "comment": verdict.feedback}
        keys = criterion_keys([criterion["name"] for criterion in verdict.criteria])
        scored = zip(keys, verdict.criteria, strict=True)
        return {"results": [first, *({"key": key, "score": c["score"], "comment": c["why"]} for key, c in scored)]}

    judge.__name__ = known_as
    return judge


def criterion_keys(names: Sequence[str], *, hidden: bool = False) -> list[str]:
    """Feedback keys for criteria, no two the same: `Handles the empty list` gets `criterion_handles_the_empty_list`.

    Args:
        names: as the evaluator gave them.
        hidden: whether they are numbered instead, as what a user asked for is not to be seen.
    """
    keys: list[str] = []
    for place, name in enumerate(names, start=1):
        words = "" if hidden else re.sub(r"\W+", "_", name.lower()).strip("_")[:_LONGEST_KEY]
        key = f"criterion_{words or place}"
        while key in keys:
            key = f"{key}_{place}"
        keys.append(key)
    return keys


async def _verdict(evaluator: Evaluator, run: Run, example: Example | None) -> Evaluation:
    """Whatever goes wrong is no verdict, with the reason."""
    if run.error:
        return Evaluation(score=None, feedback=f"the run failed: {run.error}")
    try:
        inputs = (example.inputs if example else None) or run.inputs
        task = read_example(inputs, example.outputs if example else None)
        attempt = Attempt(number=1, answer=read_answer(run.outputs), plan="", style="first")
        return await evaluator.evaluate(task, attempt)
    except Exception as error:  # noqa: BLE001 - one example without a verdict is not to end the experiment
        return Evaluation(score=None, feedback=scrub(f"no verdict: {type(error).__name__}: {error}"))


def read_example(inputs: Mapping[str, Any], reference: Mapping[str, Any] | None = None) -> Task:
    """The task of an example: `task`, `tests`, `expect` and `criteria` of its inputs; those of its reference go first.

    The text may have any name where the inputs hold no other text; so may the expected answer where the
    reference outputs hold nothing else, and `answer` is one as well.

    Raises:
        ValueError: there is no text that is plainly the task.
    """
    text = _named_or_only(inputs, "task")
    if text is None:
        raise ValueError(f"an example's inputs need a text named task; these have {sorted(inputs)}")
    reference = reference or {}
    expect = _expected(reference)
    given = {**inputs, **reference}
    return Task(
        text=text,
        tests=given.get("tests") or "",
        expect=inputs.get("expect") if expect is None else expect,
        criteria=given.get("criteria") or (),
    )


def read_answer(outputs: Mapping[str, Any] | None) -> str:
    """The answer of a run: its output `answer`, or the only text among its outputs.

    Raises:
        ValueError: there is none.
    """
    answer = _named_or_only(outputs or {}, "answer")
    if answer is None:
        raise ValueError(f"a run's outputs need a text named answer; these have {sorted(outputs or {})}")
    return answer


def _named_or_only(values: Mapping[str, Any], name: str) -> str | None:
    if isinstance(values.get(name), str):
        return str(values[name])
    texts = [value for key, value in values.items() if isinstance(value, str) and key not in _NOT_TEXT]
    return texts[0] if len(texts) == 1 else None


def _expected(reference: Mapping[str, Any]) -> Any:
    for name in ("expect", "answer"):
        if name in reference:
            return reference[name]
    rest = [value for key, value in reference.items() if key not in _NOT_TEXT]
    return rest[0] if len(rest) == 1 else None
