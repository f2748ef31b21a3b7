"""What a critic's reply comes to: a verdict that does not contradict itself, or that it cannot judge."""

from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from reflexion.evaluators.records import CriterionScore
from reflexion.evaluators.rubric import Rubric
from reflexion.evaluators.scores import HIGHEST, LOWEST, ScoreError, read_score
from reflexion.models import Structure, object_of, strict_schema
from reflexion.models.replies import Reply

_TEXT = {"type": "string"}
_SCORE = {"type": "number", "minimum": LOWEST, "maximum": HIGHEST}
_FIELDS: dict[str, Any] = {
    "reasoning": _TEXT,
    "strengths": _TEXT,
    "weaknesses": _TEXT,
    "improvements": _TEXT,
    "score": _SCORE,
}
_CRITERIA = {"type": "array", "items": strict_schema(name=_TEXT, why=_TEXT, score=_SCORE)}
VERDICT = Structure("verdict", strict_schema(**_FIELDS))
VERDICT_BY_CRITERIA = Structure("verdict", strict_schema(criteria=_CRITERIA, **_FIELDS))

GOOD = 0.8
"""The prompts say that 8 of 10 is good enough to be used as it is."""

_APART = 0.3
"""How far an overall score may lie from the mean of its own criteria, and a score from the word for it."""

_SCORE_ALONE = 40
"""Characters. A longer text without JSON is prose, whose numbers may mean anything."""


class CriterionVerdict(BaseModel):
    """What a critic says about one criterion."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    score: float | None = None
    """0..1."""
    why: str = ""

    @field_validator("score", mode="before")
    @classmethod
    def _readable_or_none(cls, value: Any) -> float | None:
        try:
            return read_score(value)
        except ScoreError:
            return None

    @field_validator("name", "why", mode="before")
    @classmethod
    def _text(cls, value: Any) -> str:
        return "" if value is None else str(value)


class _Reply(BaseModel):
    """What both kinds of reply may hold; anything odd in it is left out."""

    model_config = ConfigDict(extra="ignore")

    reasoning: str = ""
    strengths: str = ""
    weaknesses: str = ""
    improvements: str = ""
    criteria: list[CriterionVerdict] = Field(default_factory=list)

    @field_validator("reasoning", "strengths", "weaknesses", "improvements", mode="before")
    @classmethod
    def _join(cls, value: Any) -> str:
        if isinstance(value, list):
            return "; ".join(str(item) for item in value)
        return "" if value is None else str(value)

    @field_validator("criteria", mode="before")
    @classmethod
    def _entries(cls, value: Any) -> list[Any]:
        if isinstance(value, dict):
            value = [
                {"score": entry, **(entry if isinstance(entry, dict) else {}), "name": name}
                for name, entry in value.items()
            ]
        return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


class Judged(_Reply):
    """A verdict with a score, all scores converted to 0..1.

    Validated with a `Rubric` of several criteria as `context`, the score becomes their weighted mean, as a model's own
    arithmetic is not relied on. A reply that does not give each of them a score has its overall score alone.
    """

    score: float = Field(ge=0, le=1)
    passed: bool | None = None
    """Whether it passes in the critic's own words, where it says so; our prompts do not ask."""

    @field_validator("score", mode="before")
    @classmethod
    def _convert(cls, value: Any) -> float:
        return read_score(value)

    @field_validator("passed", mode="before")
    @classmethod
    def _clear(cls, value: Any) -> bool | None:
        return value if isinstance(value, bool) else None

    @model_validator(mode="after")
    def _by_the_rubric(self, info: ValidationInfo) -> "Judged":
        rubric = info.context if isinstance(info.context, Rubric) else Rubric()
        if len(rubric) > 1 and len(found := _by_name(self.criteria, rubric)) == len(rubric):
            self.criteria = [found[criterion.name] for criterion in rubric]
            mean = rubric.mean(criterion.score or 0.0 for criterion in self.criteria)
            if abs(self.score - mean) > _APART + 1e-9:
                raise ValueError(
                    f"the overall score {_on_scale(self.score)} contradicts its own criteria, "
                    f"whose weighted mean is {_on_scale(mean)}"
                )
            self.score = mean
        contradicts = self.score < GOOD - _APART if self.passed else self.score >= GOOD
        if self.passed is not None and contradicts:
            raise ValueError(
                f"it says that the answer {'passes' if self.passed else 'fails'}, and scores {_on_scale(self.score)}"
            )
        return self

    @property
    def feedback(self) -> str:
        """What falls short, in the critic's words."""
        lines = [self.weaknesses or self.reasoning]
        lines += [f"{c.name}: {c.why}" for c in self.criteria if c.why and (c.score or 0) < 1]
        lines.append(self.improvements)
        return "\n".join(line for line in lines if line)

    @property
    def checks(self) -> list[str]:
        """The criteria that were not met, else what the critic would have better."""
        unmet = [c.name for c in self.criteria if c.name and c.score is not None and c.score < GOOD]
        return unmet or [line for line in (self.improvements,) if line]

    @property
    def by_criteria(self) -> list[CriterionScore]:
        """The criteria as results show them."""
        return [CriterionScore(name=c.name, score=c.score, why=c.why) for c in self.criteria]


class CannotJudge(_Reply):
    """No verdict, and why: the score is null and the reasoning says what keeps the critic from judging."""

    reasoning: str = Field(min_length=1)

    @model_validator(mode="after")
    def _nothing_judged(self) -> "CannotJudge":
        if any(criterion.score is not None for criterion in self.criteria):
            raise ValueError("`score` is null although criteria have scores")
        return self


CriticVerdict: TypeAlias = Judged | CannotJudge


def read_verdict(reply: Reply, rubric: Rubric) -> CriticVerdict:
    """The verdict in a JSON object, or in a reply that is nothing but a score.

    Raises:
        ValueError: there is none, or it contradicts itself; says how.
    """
    if reply.arguments is None and "{" not in reply.text:
        if len(reply.text) > _SCORE_ALONE:
            raise ValueError("the reply holds no JSON object")
        return Judged.model_validate({"score": reply.text}, context=rubric)
    given = object_of(reply)
    names = [str(key).strip().lower() for key in given]
    if names.count("score") > 1:
        raise ValueError("there is more than one score")
    folded = {_NAMED.get(name, name): value for name, value in zip(names, given.values(), strict=True)}
    if "score" in folded and folded["score"] is None:
        return CannotJudge.model_validate(folded)
    return Judged.model_validate(folded, context=rubric)


_NAMED = {"pass": "passed", "passes": "passed"}


def _by_name(given: list[CriterionVerdict], rubric: Rubric) -> dict[str, CriterionVerdict]:
    """What the critic says of the rubric's criteria, by their names; those without a score are left out."""
    found: dict[str, CriterionVerdict] = {}
    for verdict in given:
        criterion = rubric.find(verdict.name)
        if criterion is None or verdict.score is None:
            continue
        if criterion.name in found:
            raise ValueError(f"criterion {criterion.name!r} is judged twice")
        found[criterion.name] = verdict.model_copy(update={"name": criterion.name})
    return found


def _on_scale(score: float) -> str:
    return f"{score * HIGHEST:g}"
