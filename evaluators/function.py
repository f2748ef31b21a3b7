"""Any function as evaluator: the user's own, or one of openevals or LangSmith as it is."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from langgraph.errors import GraphBubbleUp
from langsmith.schemas import Example, Run

from reflexion.evaluators.records import Attempt, CriterionScore, Evaluation, Evaluator, Task
from reflexion.models import scrub

KNOWN = frozenset({"answer", "task", "attempt", "inputs", "outputs", "reference_outputs", "run", "example"})
"""Parameters that are given by name."""


class Function:
    """Calls a function and reads its verdict.

    The function may be sync (it then runs in a thread) or async. It is given what its parameters ask for:
    `answer`, `task`, `attempt`, or as openevals and LangSmith name them `inputs`, `outputs`, `reference_outputs`,
    `run` and `example`. A single parameter of any other name gets the answer, two get the task and the attempt.
    It returns a bool, a float in 0..1, an `Evaluation`, or a mapping or object with `score` and perhaps `comment`.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        """Look at what the function asks for.

        Raises:
            TypeError: it asks for what there is not.
        """
        inner = getattr(function, "func", function)
        self.name = str(name or getattr(inner, "__name__", type(inner).__name__))
        self._function = function
        self._by_position, self._by_name = _parameters(function, self.name)

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Call the function; whatever it raises, or returns in another form, is no verdict.

        Raises:
            GraphBubbleUp: the function has interrupted the graph, to ask somebody.
        """
        values = _values(task, attempt)
        positional = [values[name] for name in self._by_position]
        keywords = {name: values[name] for name in self._by_name}
        try:
            if _is_async(self._function):
                verdict = await self._function(*positional, **keywords)
            else:
                verdict = await asyncio.to_thread(self._function, *positional, **keywords)
                if inspect.isawaitable(verdict):
                    verdict = await verdict
            return self._read(verdict)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; the run goes on without a verdict
            reason = f"{self.name} failed: {type(error).__name__}: {scrub(str(error))}"
            return Evaluation(score=None, feedback=reason, evaluator=self.name)

    def _read(self, verdict: Any) -> Evaluation:
        match verdict:
            case Evaluation():
                return verdict
            case {"results": [*several]} | [*several] if several:
                return self._read(several[0]) if len(several) == 1 else self._read_several(several)
            case {"score": score}:
                comment = verdict.get("comment") or verdict.get("reasoning")
            case object(score=score):
                comment = getattr(verdict, "comment", None)
            case _:
                score, comment = verdict, None
        if score is not None and (isinstance(score, str | bytes) or not hasattr(score, "__float__")):
            raise TypeError(
                f"returned {verdict!r}; a bool, a float in 0..1, an Evaluation or a mapping with a score is needed"
            )
        if verdict is None:
            raise TypeError("returned None, which is no verdict")
        number = None if score is None else float(score)
        return Evaluation(score=number, feedback=str(comment or ""), evaluator=self.name)

    def _read_several(self, results: Sequence[Any]) -> Evaluation:
        """Several results, each with a key: all of them are to hold, so the lowest is the score."""
        read = [(_key(result), self._read(result)) for result in results]
        return Evaluation(
            score=min((part.score for _, part in read if part.score is not None), default=None),
            feedback="\n".join(f"{key}: {part.feedback}" for key, part in read if part.feedback),
            criteria=[CriterionScore(name=key, score=part.score, why=part.feedback) for key, part in read],
            evaluator=self.name,
        )


def _key(result: Any) -> str:
    key = result["key"] if isinstance(result, dict) else getattr(result, "key", None)
    if not isinstance(key, str):
        raise TypeError(f"returned {result!r} among several results; each of them needs a key")
    return key


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - whether it is async, not whether it is callable
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _values(task: Task, attempt: Attempt) -> dict[str, Any]:
    inputs, outputs = {"task": task.text}, {"answer": attempt["answer"]}
    reference = None if task.expect is None else {"answer": task.expect}
    run = Run(
        id=uuid4(), name="attempt", start_time=datetime.now(UTC), run_type="chain", inputs=inputs, outputs=outputs
    )
    return {
        "answer": attempt["answer"],
        "task": task,
        "attempt": attempt,
        "inputs": inputs,
        "outputs": outputs,
        "reference_outputs": reference,
        "run": run,
        "example": Example(id=uuid4(), inputs=inputs, outputs=reference),
    }


def _parameters(function: Callable[..., Any], name: str) -> tuple[Sequence[str], Sequence[str]]:
    """What to give by position, and what by name.

    Raises:
        TypeError: nothing that we have fits.
    """
    kinds = inspect.Parameter
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some functions written in C have none
        return ["answer"], []
    open_ended = any(p.kind is kinds.VAR_KEYWORD for p in parameters)
    parameters = [p for p in parameters if p.kind not in {kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD}]
    required = [p for p in parameters if p.default is kinds.empty]
    known = [p for p in parameters if p.name in KNOWN]
    if all(p.name in KNOWN for p in required) and (known or open_ended):
        by_position = [p.name for p in known if p.kind is kinds.POSITIONAL_ONLY]
        by_name = [p.name for p in known if p.kind is not kinds.POSITIONAL_ONLY]
        return by_position, by_name or (["inputs", "outputs", "reference_outputs"] if not known else [])
    places = [p for p in required if p.kind is not kinds.KEYWORD_ONLY]
    if len(places) == len(required) and len(places) in {1, 2} and not any(p.name in KNOWN for p in required):
        return (["answer"], []) if len(places) == 1 else (["task", "attempt"], [])
    raise TypeError(
        f"the evaluator {name} has parameters ({', '.join(p.name for p in parameters)}); it may have one (the answer), "
        f"two (task and attempt), or any of {', '.join(sorted(KNOWN))}"
    )


def as_evaluator(given: Evaluator | Callable[..., Any]) -> Evaluator:
    """The evaluator that an object is, or that a function becomes.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(given, type):
        raise TypeError(f"{given.__name__} is a class; an evaluator is one of its instances: {given.__name__}()")
    if isinstance(given, Evaluator):
        return given
    if hasattr(given, "aevaluate_run"):  # LangSmith's `RunEvaluator`
        return Function(given.aevaluate_run, getattr(given, "__name__", type(given).__name__))
    if callable(given):
        return Function(given)
    raise TypeError(f"{given!r} is no evaluator: it has no evaluate(task, attempt) and cannot be called")
