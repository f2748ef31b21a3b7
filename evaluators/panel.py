"""Several evaluators as one."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from langgraph.errors import GraphBubbleUp

from reflexion.evaluators.function import as_evaluator
from reflexion.evaluators.records import Attempt, CriterionScore, Evaluation, Evaluator, Task
from reflexion.models import BudgetExhausted, DeadlineExceeded, ModelError, scrub

How = Literal["first_no", "minimum", "mean", "majority"]


class Panel:
    """Asks several evaluators and makes one verdict of theirs.

    `first_no` asks them in their order, the cheapest first, each only where those before gave full marks; the last one
    asked has the say. The others ask all at the same time: `minimum` takes the lowest score; `mean` the weighted mean;
    `majority` the weighted median, which reaches a threshold exactly where members with more than half of the weight
    do. No verdict of a member, or an exception from it, is no verdict of the panel, unless whatever the member had
    said would have led to the same score (a minimum that is 0 already, a majority that stands).
    """

    name = "panel"

    def __init__(
        self,
        evaluators: Sequence[Evaluator | Callable[..., Any]],
        how: How = "first_no",
        *,
        weights: Sequence[float] | None = None,
    ) -> None:
        """Take the members: evaluators, or functions that can be one.

        Args:
            evaluators: in their order.
            how: what is made of their verdicts.
            weights: one for each member, for `mean` and `majority`; None for the same weight for all.

        Raises:
            ValueError: there is no member, or the weights do not fit.
            TypeError: a member is no evaluator.
        """
        if not evaluators:
            raise ValueError("a panel needs at least one evaluator")
        if how != "first_no" and how not in _COMBINE:
            raise ValueError(f"how {how!r} is none of first_no, {', '.join(_COMBINE)}")
        if weights is not None:
            if how in {"first_no", "minimum"}:
                raise ValueError(f"weights have no meaning for {how}")
            if len(weights) != len(evaluators) or not all(weight > 0 and math.isfinite(weight) for weight in weights):
                raise ValueError(
                    f"weights {weights!r}: one number above 0 is needed for each of {len(evaluators)} evaluators"
                )
        self._members = [as_evaluator(given) for given in evaluators]
        self._weights = [1.0] * len(evaluators) if weights is None else [float(weight) for weight in weights]
        self._how = how

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge an attempt.

        Raises:
            ModelError: a member's endpoint failed, which is for the run to deal with; so are the ends of a budget and
                of a deadline.
        """
        if self._how == "first_no":
            return await self._in_turn(task, attempt)
        asked = [_verdict_of(member, task, attempt) for member in self._members]
        # All are awaited whatever happens to one, so that none runs on unseen.
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        verdicts = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            verdicts.append(outcome)
        score = _score(_COMBINE[self._how], [verdict.score for verdict in verdicts], self._weights)
        return Evaluation(
            score=score,
            feedback=_feedback(verdicts),
            checks=[check for verdict in verdicts for check in verdict.checks],
            criteria=[entry for verdict in verdicts for entry in _entries(verdict)],
            evaluator=self.name,
            advisory=all(verdict.advisory for verdict in verdicts),
        )

    async def _in_turn(self, task: Task, attempt: Attempt) -> Evaluation:
        asked: list[Evaluation] = []
        for member in self._members:
            asked.append(await _verdict_of(member, task, attempt))
            if asked[-1].score is None or asked[-1].score < 1:
                break
        *earlier, last = asked
        return Evaluation(
            score=last.score,
            feedback=last.feedback,
            checks=last.checks,
            criteria=[*(entry for verdict in earlier for entry in _entries(verdict)), *last.criteria],
            evaluator=last.evaluator,
            advisory=last.advisory,
        )


async def _verdict_of(member: Evaluator, task: Task, attempt: Attempt) -> Evaluation:
    name = str(getattr(member, "name", type(member).__name__))
    try:
        verdict: object = await member.evaluate(task, attempt)
        if isinstance(verdict, Evaluation):
            return verdict if verdict.evaluator else replace(verdict, evaluator=name)
        reason = f"{name} returned {verdict!r} instead of an Evaluation"
    except (ModelError, BudgetExhausted, DeadlineExceeded, GraphBubbleUp):
        raise
    except Exception as error:  # noqa: BLE001 - anybody's code; its failure is no verdict
        reason = f"{name} failed: {type(error).__name__}: {error}"
    return Evaluation(score=None, feedback=scrub(reason), evaluator=name)


def _minimum(scores: Sequence[float], _: Sequence[float]) -> float:
    return min(scores)


def _mean(scores: Sequence[float], weights: Sequence[float]) -> float:
    return min(1.0, math.fsum(s * w for s, w in zip(scores, weights, strict=True)) / math.fsum(weights))


def _majority(scores: Sequence[float], weights: Sequence[float]) -> float:
    """The highest score that members with more than half of the weight reach."""
    reached = 0.0
    for score, weight in sorted(zip(scores, weights, strict=True), reverse=True):
        reached += weight
        if reached > math.fsum(weights) / 2:
            return score
    return min(scores)


_COMBINE = {"minimum": _minimum, "mean": _mean, "majority": _majority}


def _score(
    combine: Callable[[Sequence[float], Sequence[float]], float],
    scores: Sequence[float | None],
    weights: Sequence[float],
) -> float | None:
    """The common score; None where it depends on what a member without a verdict would have said."""
    worst, best = (combine([missing if s is None else s for s in scores], weights) for missing in (0.0, 1.0))
    return worst if worst == best else None


def _feedback(verdicts: Sequence[Evaluation]) -> str:
    """What each member says that is not content, or all where all are."""
    telling = [verdict for verdict in verdicts if verdict.score is None or verdict.score < 1] or verdicts
    return "\n".join(f"{verdict.evaluator}: {verdict.feedback}" for verdict in telling if verdict.feedback)


def _entries(verdict: Evaluation) -> list[CriterionScore]:
    """A member's own score and those of its criteria, under its name."""
    own = CriterionScore(name=verdict.evaluator, score=verdict.score, why=verdict.feedback)
    criteria = [
        CriterionScore(**{**entry, "name": f"{verdict.evaluator}: {entry['name']}"}) for entry in verdict.criteria
    ]
    return [own, *criteria]
