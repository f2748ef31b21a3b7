"""Any function as evaluator: the user's own, or one of openevals or LangSmith as it is."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from reflexion.evaluators.records import Attempt, Evaluation, Evaluator, Task


class Function:
    """Calls a function and reads its verdict.

    The function may be sync (it then runs in a thread) or async. It is given what its parameters ask for:
    `answer`, `task`, `attempt`, or `inputs`, `outputs` and `reference_outputs` as openevals and LangSmith
    name them. A single parameter of any other name gets the answer, two get the task and the attempt.
    It returns a bool, a float in 0..1, an `Evaluation`, or a mapping with `score` and perhaps `comment`.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self._function = function
        self._parameters = _parameters(function)

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Call the function; whatever it raises, or returns in another form, is no verdict."""
        keywords, positional = self._arguments(task, attempt)
        try:
            if inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(
                getattr(self._function, "__call__", None)  # noqa: B004 - whether it is async, not whether it is callable
            ):
                verdict = await self._function(*positional, **keywords)
            else:
                verdict = await asyncio.to_thread(self._function, *positional, **keywords)
                if inspect.isawaitable(verdict):
                    verdict = await verdict
            return self._read(verdict)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; the run goes on without a verdict
            reason = f"{self.name} failed: {type(error).__name__}: {error}"
            return Evaluation(score=None, feedback=reason, evaluator=self.name)

    def _arguments(self, task: Task, attempt: Attempt) -> tuple[dict[str, Any], list[Any]]:
        known = {
            "answer": attempt["answer"],
            "task": task,
            "attempt": attempt,
            "inputs": {"task": task.text},
            "outputs": {"answer": attempt["answer"]},
            "reference_outputs": None if task.expect is None else {"answer": task.expect},
        }
        by_name = {name: known[name] for name in self._parameters if name in known}
        if by_name:
            return by_name, []
        return {}, [attempt["answer"]] if len(self._parameters) == 1 else [task, attempt]

    def _read(self, verdict: Any) -> Evaluation:
        match verdict:
            case Evaluation():
                return verdict
            case bool() | int() | float():
                score, comment = float(verdict), ""
            case {"score": bool() | int() | float() as value, **rest}:
                score, comment = float(value), str(rest.get("comment") or rest.get("reasoning") or "")
            case _:
                raise TypeError(
                    f"returned {verdict!r}; a bool, a float in 0..1, an Evaluation or a mapping with a score is needed"
                )
        return Evaluation(score=score, feedback=comment, evaluator=self.name)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that have to be given, or that we know how to give."""
    wanted = {"answer", "task", "attempt", "inputs", "outputs", "reference_outputs"}
    kinds = inspect.Parameter
    signature = inspect.signature(function)
    names = [
        p.name
        for p in signature.parameters.values()
        if p.kind not in {kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD} and (p.default is kinds.empty or p.name in wanted)
    ]
    if any(p.kind is kinds.VAR_KEYWORD for p in signature.parameters.values()) and not set(names) & wanted:
        names += ["inputs", "outputs", "reference_outputs"]
    return names


def as_evaluator(given: Evaluator | Callable[..., Any]) -> Evaluator:
    """The evaluator that an object is, or that a function becomes.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(given, Evaluator):
        return given
    if callable(given):
        return Function(given)
    raise TypeError(f"{given!r} is no evaluator: it has no evaluate(task, attempt) and cannot be called")
