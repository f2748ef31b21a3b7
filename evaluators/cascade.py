"""Several evaluators in turn, the cheapest first."""

from collections.abc import Sequence

from reflexion.evaluators.records import Attempt, Evaluation, Evaluator, Task


class Cascade:
    """Asks each evaluator only when the ones before found nothing wrong; the last one asked has the say.

    So a model is paid to judge only what passes its tests.
    """

    name = "cascade"

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        """Take the evaluators in their order.

        Raises:
            ValueError: there are none.
        """
        if not evaluators:
            raise ValueError("a cascade needs at least one evaluator")
        self._evaluators = evaluators

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """The verdict of the first evaluator that does not give full marks, else of the last."""
        for evaluator in self._evaluators[:-1]:
            verdict = await evaluator.evaluate(task, attempt)
            if verdict.score is None or verdict.score < 1:
                return verdict
        return await self._evaluators[-1].evaluate(task, attempt)
