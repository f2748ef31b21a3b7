"""The settings of one run: the graph's context, a form in Studio, and `REFLEXION_*` in the environment."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from dotenv import dotenv_values
from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from reflexion.memory import MOST_LESSONS, MOST_TOKENS
from reflexion.models import Role
from reflexion.nodes.fields import (
    ActorPrompt,
    AttemptStyle,
    EvaluatorPrompt,
    ModelNames,
    Namespace,
    PackageNames,
    PlannerPrompt,
    ReflectorPrompt,
    Reviewed,
    as_form,
    model_field,
    prompt_field,
)
from reflexion.prompts import Language

MOST_ATTEMPTS = 100
"""Limit of `max_attempts`."""


class ConfigurationError(ValueError):
    """A setting or an input that cannot be used: one line that says which, why, and what to do."""


@cache
def _dotenv() -> Mapping[str, str | None]:
    # Settings are also made inside event loops, where no file may be read.
    return {name.lower(): value for name, value in dotenv_values(".env").items()}


class _OurDotenv(EnvSettingsSource):
    """`.env`, read once; what else it holds is not ours to refuse."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return _dotenv()


class Settings(BaseSettings):
    """What one run may be told. Every field is also `REFLEXION_<FIELD>` in the environment or in `.env`."""

    model_config = SettingsConfigDict(
        env_prefix="REFLEXION_", extra="forbid", frozen=True, env_ignore_empty=True, json_schema_extra=as_form
    )

    threshold: float = Field(
        default=0.8,
        ge=0,
        le=1,
        title="Threshold",
        description="An attempt passes with this score (0 to 1) or more.",
    )
    max_attempts: int = Field(
        default=3, ge=1, le=MOST_ATTEMPTS, title="Attempts", description="How many attempts the actor has at the most."
    )
    patience: int = Field(
        default=0,
        ge=0,
        title="Patience",
        description="End as a plateau after so many attempts without a better score; 0 for never.",
    )
    planner: bool = Field(
        default=True,
        title="Plan",
        description="Turn each reflection into a plan for the next attempt, which costs a request.",
        json_schema_extra={"langgraph_nodes": ["planner"]},
    )
    attempt_style: AttemptStyle = Field(
        default="auto",
        title="Style of the next attempt",
        description=(
            "fresh: a new prompt with the lesson as a rule; revise: the best attempt, to be improved; "
            "auto: fresh unless the best attempt was nearly right."
        ),
        json_schema_extra={"langgraph_nodes": ["actor"]},
    )
    review: Reviewed = Field(
        default="off",
        title="Human review",
        description=(
            "Wait for a person's word before an answer that passed is accepted (answer), before another attempt is "
            "made (attempt), or both."
        ),
        json_schema_extra={"langgraph_nodes": ["review"]},
    )
    memory: bool = Field(
        default=True,
        title="Memory",
        description="Use lessons of earlier runs, and leave some for later ones.",
        json_schema_extra={"langgraph_nodes": ["recall", "remember"]},
    )
    lessons: int = Field(
        default=1,
        ge=0,
        le=10,
        title="Lessons to recall",
        description="More than one has been measured to help less.",
        json_schema_extra={"langgraph_nodes": ["recall"]},
    )
    memory_explore: float = Field(
        default=0.1,
        ge=0,
        le=1,
        title="Lessons on trial",
        description="Share of the runs (0 to 1) in which a lesson yet unproven takes the place of the best one.",
        json_schema_extra={"langgraph_nodes": ["recall"]},
    )
    memory_control: float = Field(
        default=0.05,
        ge=0,
        le=1,
        title="Runs without lessons",
        description="Share of the runs (0 to 1) that are given no lesson, so that it can be measured what lessons do.",
        json_schema_extra={"langgraph_nodes": ["recall"]},
    )
    memory_tokens: int = Field(
        default=MOST_TOKENS,
        ge=1,
        title="Tokens of lessons",
        description="Estimated tokens that recalled lessons may take together; one that does not fit is passed over.",
        json_schema_extra={"langgraph_nodes": ["recall"]},
    )
    memory_lessons: int = Field(
        default=MOST_LESSONS,
        ge=1,
        title="Lessons kept",
        description="Lessons of a namespace at most; the retired and those not seen for longest go first.",
        json_schema_extra={"langgraph_nodes": ["remember"]},
    )
    memory_days: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        title="Days that lessons are kept",
        description="Lessons that no run came to or used for so many days are forgotten; empty for never.",
        json_schema_extra={"langgraph_nodes": ["recall", "remember"]},
    )
    namespace: Namespace = Field(
        default="default",
        title="Namespace",
        description="Lessons are shared within a namespace and never between two: a project, a user, or shop/anna.",
        json_schema_extra={"langgraph_nodes": ["recall", "remember"]},
    )
    lang: Language = Field(default="en", title="Language of the prompts")
    model: str | None = Field(
        default=None,
        title="Model",
        description="Model of all roles that have none of their own; empty for the embedded model.",
        json_schema_extra={"langgraph_type": "model"},
    )
    actor_model: str | None = model_field("Actor")
    evaluator_model: str | None = model_field("Evaluator")
    reflector_model: str | None = model_field("Reflector")
    planner_model: str | None = model_field("Planner")
    actor_prompt: ActorPrompt = prompt_field("Actor", "{{rules}}")
    evaluator_prompt: EvaluatorPrompt = prompt_field("Evaluator", "{{criteria}}")
    reflector_prompt: ReflectorPrompt = prompt_field("Reflector")
    planner_prompt: PlannerPrompt = prompt_field("Planner")
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=2,
        title="Temperature of the actor",
        description="Empty for the endpoint's own; the embedded model then uses 0 at first and 0.7 later.",
        json_schema_extra={"langgraph_nodes": ["actor"]},
    )
    max_tokens: int | None = Field(
        default=None,
        ge=16,
        title="Longest answer",
        description="Tokens of the actor's reply; empty for no limit.",
    )
    budget_usd: Decimal | None = Field(
        default=None, gt=0, title="Budget in USD", description="The run ends before it would spend more."
    )
    budget_tokens: int | None = Field(
        default=None,
        gt=0,
        title="Budget in tokens",
        description="Prompt and reply tokens of all roles together.",
    )
    budget_requests: int | None = Field(
        default=None, gt=0, title="Budget in requests", description="HTTP requests of all roles, repeated ones too."
    )
    thread_budget_usd: Decimal | None = Field(
        default=None, gt=0, title="Thread's budget in USD", description="For all runs on the thread together."
    )
    thread_budget_tokens: int | None = Field(
        default=None, gt=0, title="Thread's budget in tokens", description="For all runs on the thread together."
    )
    thread_budget_requests: int | None = Field(
        default=None, gt=0, title="Thread's budget in requests", description="For all runs on the thread together."
    )
    thread_budget_s: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        title="Thread's budget in seconds",
        description="Time since the thread's first request, whether or not a run was at work.",
    )
    fallback_models: ModelNames = Field(
        default=(),
        title="Fallback models",
        description="Asked in this order where a role's own model is down, busy, or cannot take the request.",
    )
    cheaper_model: str | None = Field(
        default=None,
        title="Cheaper model",
        description="Used for all roles when less than half of the run's budget is left.",
        json_schema_extra={"langgraph_type": "model"},
    )
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        title="Deadline in seconds",
        description="Time that the run may work in all.",
    )
    test_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=600,
        title="Time for the tests",
        description="Seconds that all tests of one attempt may take.",
        json_schema_extra={"langgraph_nodes": ["evaluator"]},
    )
    critic_samples: int = Field(
        default=1,
        ge=1,
        le=15,
        title="Critic's samples",
        description="How often a critic is asked where its first score is near the threshold; the median counts.",
        json_schema_extra={"langgraph_nodes": ["evaluator"]},
    )
    sandbox_strict: bool = Field(
        default=False,
        title="Strict sandbox",
        description="Run no code where this platform lacks one of the sandbox's protections.",
        json_schema_extra={"langgraph_nodes": ["evaluator"]},
    )
    sandbox_packages: PackageNames = Field(
        default=(),
        title="Packages in the sandbox",
        description="Installed packages that code and tests may import, such as numpy, and those that these need.",
        json_schema_extra={"langgraph_nodes": ["evaluator"]},
    )
    generate_tests: bool = Field(
        default=False,
        title="Generate tests",
        description="Where a task has neither tests nor an expected answer, the model writes tests, and code is run.",
        json_schema_extra={"langgraph_nodes": ["evaluator"]},
    )
    stream: bool = Field(
        default=False,
        title="Stream tokens",
        description="Send each role's text as it is written.",
        json_schema_extra={"langgraph_nodes": ["actor"]},
    )

    _given: frozenset[str] = PrivateAttr(default=frozenset())

    if not TYPE_CHECKING:  # callers are to see the fields

        def __init__(self, **values: Any) -> None:
            super().__init__(**values)
            self._given = frozenset(values)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What the caller says wins over the environment, the environment over `.env`."""
        return init_settings, env_settings, _OurDotenv(settings_cls)

    @property
    def given(self) -> frozenset[str]:
        """Names of the fields that the caller has set; those from the environment are none of them."""
        return self._given

    def model_for(self, role: Role) -> str | None:
        """The model's name for a role; None for the default."""
        own: str | None = getattr(self, f"{role}_model")
        return own or self.model

    def own_prompts(self) -> dict[str, str]:
        """The system texts that take the place of those of the files, by prompt."""
        texts = {
            "actor": self.actor_prompt,
            "reviser": self.actor_prompt,
            "critic": self.evaluator_prompt,
            "reflector": self.reflector_prompt,
            "planner": self.planner_prompt,
        }
        return {prompt: text for prompt, text in texts.items() if text}


def make_settings(base: Settings | None = None, **values: Any) -> Settings:
    """Settings from the environment and `.env`, or from `base`, with some fields changed.

    Raises:
        ConfigurationError: a field is unknown or its value impossible.
    """
    if base is not None and not values:
        return base
    if base is None:
        read_dotenv()
    try:
        return Settings(**values) if base is None else _changed(base, values)
    except ValidationError as error:
        raise ConfigurationError(explain(error)) from error


def _changed(base: Settings, values: dict[str, Any]) -> Settings:
    settings = Settings.__new__(Settings)
    # Settings' own constructor would read the environment again, for every run.
    BaseModel.__init__(settings, **base.model_dump(exclude_unset=True) | values)
    settings._given = frozenset(values)  # noqa: SLF001 - in place of what the constructor does
    return settings


def read_dotenv() -> None:
    """Read `.env` now, where it may be read, for all settings that are made later."""
    _dotenv.cache_clear()
    _dotenv()


def settings_of(context: object, default: Settings, kept: Mapping[str, Any]) -> Settings:
    """A run's settings: what the caller says now, else what was said when the run began, else the default.

    LangGraph does not keep the context: whoever resumes a run would have to say all of it again, and a budget that
    is not repeated would be gone.

    Args:
        context: what LangGraph hands over; a graph around ours may have one of another kind, which says nothing.
        default: of runs that are told nothing.
        kept: see `said`; empty where the run begins.

    Raises:
        ConfigurationError: what was kept cannot be used any more.
    """
    if not isinstance(context, Settings):
        context = default
    told = _told(context, default)
    return make_settings(context, **{name: value for name, value in kept.items() if name not in told})


def said(settings: Settings, default: Settings) -> dict[str, Any]:
    """What a run was told, as plain JSON: neither what is in the environment nor the agent's own settings."""
    return settings.model_dump(mode="json", include=_told(settings, default))


def _told(settings: Settings, default: Settings) -> set[str]:
    return set() if settings is default else set(settings.given)


def explain(error: ValidationError) -> str:
    """A validation error as one line: which field, what is wrong with it."""
    lines = []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"]) or error.title
        if problem["type"] == "extra_forbidden":
            lines.append(f"{name}: there is no such setting")
            continue
        given = "" if "value_error" in problem["type"] else f" (it is {problem['input']!r})"
        hint = "; scores run from 0 to 1, so 7 of 10 is 0.7" if name == "threshold" else ""
        lines.append(f"{name}: {problem['msg'].removeprefix('Value error, ')}{given}{hint}")
    return "; ".join(lines)
