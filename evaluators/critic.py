"""A model as judge: for what no test can check, and never as good as one."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from reflexion.evaluators.records import Attempt, CriterionScore, Evaluation, Task
from reflexion.evaluators.scores import HIGHEST, LOWEST, ScoreError, read_score
from reflexion.models import Completer, Meter, Structure, ask_structured, object_of, strict_schema
from reflexion.models.errors import ModelError
from reflexion.models.replies import Reply
from reflexion.prompts import Fence, Language, PromptBook

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


class CriticVerdict(BaseModel):
    """A critic's whole reply, its scores converted to 0..1. Only its own score has to be right; the rest may be odd."""

    model_config = ConfigDict(extra="ignore")

    score: float = Field(ge=0, le=1)
    reasoning: str = ""
    strengths: str = ""
    weaknesses: str = ""
    improvements: str = ""
    criteria: list[CriterionVerdict] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _fold_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        folded = {str(key).strip().lower(): value for key, value in data.items()}
        if sum(str(key).strip().lower() == "score" for key in data) > 1:
            raise ValueError("there is more than one score")
        return folded

    @field_validator("score", mode="before")
    @classmethod
    def _convert(cls, value: Any) -> float:
        return read_score(value)

    @field_validator("reasoning", "strengths", "weaknesses", "improvements", mode="before")
    @classmethod
    def _join(cls, value: Any) -> str:
        if isinstance(value, list):
            return "; ".join(str(item) for item in value)
        return "" if value is None else str(value)

    @field_validator("criteria", mode="before")
    @classmethod
    def _entries(cls, value: Any) -> list[Any]:
        return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


class Critic:
    """Asks a model for a verdict by criteria."""

    name = "critic"

    def __init__(self, client: Completer, meter: Meter, prompts: PromptBook, lang: Language = "en") -> None:
        self._client = client
        self._meter = meter
        self._prompts = prompts
        self._lang = lang

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge an attempt with one request, or two where the first reply cannot be read.

        Raises:
            ModelError: the endpoint failed. A refusal is no verdict instead.
        """
        prompt = self._prompts.get("critic", self._lang)
        criteria = task.criteria or [prompt.sections.get("criterion", "")]
        structure = VERDICT_BY_CRITERIA if task.criteria else VERDICT
        fence = Fence()
        messages = prompt.messages(
            criteria="\n".join(f"- {criterion}" for criterion in criteria),
            each=prompt.sections.get("each", "") if task.criteria else "",
            task=fence.around("task", task.text),
            answer=fence.around("answer", attempt["answer"]),
            reference=fence.around("reference", "" if task.expect is None else str(task.expect)),
        )
        try:
            read = await ask_structured(self._client, messages, self._meter, structure, _parse)
        except ModelError as error:
            if error.kind not in {"refused", "content_filter"}:
                raise
            return self._none(str(error))
        if read.value is None:
            return self._none(f"{read.problem}; it wrote: {read.raw[:300]!r}")
        verdict = read.value
        return Evaluation(
            score=verdict.score,
            feedback=_feedback(verdict),
            checks=_checks(verdict),
            criteria=[CriterionScore(name=c.name, score=c.score, why=c.why) for c in verdict.criteria],
            evaluator=self.name,
            advisory=self._client.embedded,
        )

    def _none(self, reason: str) -> Evaluation:
        return Evaluation(score=None, feedback=f"the critic gave no verdict: {reason}", evaluator=self.name)


def _parse(reply: Reply) -> CriticVerdict:
    """A verdict from a JSON object, or from a reply that is nothing but a score."""
    if reply.arguments is None and "{" not in reply.text:
        if len(reply.text) > _SCORE_ALONE:
            raise ValueError("the reply holds no JSON object")
        return CriticVerdict.model_validate({"score": reply.text})
    return CriticVerdict.model_validate(object_of(reply))


_SCORE_ALONE = 40
"""Characters. A longer text without JSON is prose, whose numbers may mean anything."""


def _checks(verdict: CriticVerdict) -> list[str]:
    """The criteria that were not met, else what the critic would have better."""
    unmet = [c.name for c in verdict.criteria if c.name and c.score is not None and c.score < _MET]
    return unmet or [line for line in (verdict.improvements,) if line]


_MET = 0.8
"""The prompts say that 8 of 10 is good enough to be used as it is."""


def _feedback(verdict: CriticVerdict) -> str:
    lines = [verdict.weaknesses or verdict.reasoning]
    lines += [f"{c.name}: {c.why}" for c in verdict.criteria if c.why and (c.score or 0) < 1]
    lines.append(verdict.improvements)
    return "\n".join(line for line in lines if line)
