"""A model as judge: for what no test can check, and never as good as one."""

from collections.abc import Sequence

from reflexion.evaluators.records import Attempt, CriterionScore, Evaluation, Task
from reflexion.evaluators.rubric import CriterionError, Rubric
from reflexion.evaluators.verdict import VERDICT, VERDICT_BY_CRITERIA, CannotJudge, CriticVerdict, Judged, read_verdict
from reflexion.models import BudgetExhausted, Completer, DeadlineExceeded, Meter, ModelError, ask_structured
from reflexion.prompts import Language, Marks, PromptBook

NEAR = 0.1
"""How close to the threshold, on the scale from 0 to 1, a score is so that asking again may change what it means."""


class Critic:
    """Asks a model for a verdict by criteria.

    Args:
        client: the model; a stronger or another one than the actor's judges better than the actor itself.
        meter: what its requests are counted on.
        prompts: where its prompt is.
        lang: the prompt's language.
        threshold: score from which on an attempt passes, 0..1.
        samples: verdicts asked for in all where the first score is within `NEAR` of the threshold; the median counts.
    """

    name = "critic"

    def __init__(
        self,
        client: Completer,
        meter: Meter,
        prompts: PromptBook,
        lang: Language = "en",
        *,
        threshold: float = 0.8,
        samples: int = 1,
    ) -> None:
        self._client = client
        self._meter = meter
        self._prompt = prompts.get("critic", lang)
        self._threshold = threshold
        self._samples = samples

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge an attempt: a verdict takes one request, or two where the first reply cannot be used.

        Raises:
            ModelError: the endpoint failed. A refusal is no verdict instead.
        """
        try:
            rubric = Rubric.read(task.criteria)
        except CriterionError as error:
            return self._none(str(error))
        first = await self._ask(task, attempt, rubric)
        if isinstance(first, CannotJudge):
            return self._none(first.reasoning)
        verdicts = [first]
        if abs(first.score - self._threshold) <= NEAR + 1e-9:
            verdicts += await self._more(task, attempt, rubric)
        # The lower of the middle two where their number is even: it is a verdict that was given.
        counts = sorted(verdicts, key=lambda verdict: verdict.score)[(len(verdicts) - 1) // 2]
        return Evaluation(
            score=counts.score,
            feedback="\n".join(filter(None, (counts.feedback, _spread(verdicts)))),
            checks=counts.checks,
            criteria=[*counts.by_criteria, *_samples(verdicts)],
            evaluator=self.name,
            advisory=self._client.embedded,
        )

    async def _more(self, task: Task, attempt: Attempt, rubric: Rubric) -> list[Judged]:
        """Further verdicts, as many as there is money, time and an endpoint for: the first one counts in any case."""
        verdicts = []
        for _ in range(self._samples - 1):
            try:
                verdict = await self._ask(task, attempt, rubric)
            except (BudgetExhausted, DeadlineExceeded, ModelError):
                break
            if isinstance(verdict, Judged):
                verdicts.append(verdict)
        return verdicts

    async def _ask(self, task: Task, attempt: Attempt, rubric: Rubric) -> CriticVerdict:
        by_criteria = len(rubric) > 1
        marks = Marks()
        messages = self._prompt.messages(
            criteria=rubric.listed() or self._prompt.sections.get("criterion", ""),
            each=self._prompt.sections.get("each", "") if by_criteria else "",
            task=marks.around("task", task.text),
            answer=marks.around("answer", attempt["answer"]),
            reference=marks.around("reference", "" if task.expect is None else str(task.expect)),
        )
        structure = VERDICT_BY_CRITERIA if by_criteria else VERDICT
        try:
            read = await ask_structured(
                self._client, messages, self._meter, structure, lambda reply: read_verdict(reply, rubric)
            )
        except ModelError as error:
            if error.kind not in {"refused", "content_filter"}:
                raise
            return CannotJudge(reasoning=str(error))
        return read.value or CannotJudge(reasoning=f"{read.problem}; it wrote: {read.raw[:300]!r}")

    def _none(self, reason: str) -> Evaluation:
        return Evaluation(score=None, feedback=f"the critic gave no verdict: {reason}", evaluator=self.name)


def _spread(verdicts: Sequence[Judged]) -> str:
    if len(verdicts) == 1:
        return ""
    scores = ", ".join(f"{verdict.score:.2f}" for verdict in verdicts)
    return f"Judged {len(verdicts)} times, as the score is near the threshold: {scores}; the median counts."


def _samples(verdicts: Sequence[Judged]) -> list[CriterionScore]:
    if len(verdicts) == 1:
        return []
    return [
        CriterionScore(name=f"sample {number}", score=verdict.score, why=verdict.feedback)
        for number, verdict in enumerate(verdicts, start=1)
    ]
