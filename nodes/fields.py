"""Kinds of settings, and how Studio's forms show them."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from reflexion.memory.places import LONGEST_NAMESPACE, check_namespace
from reflexion.prompts import check_system


def _names(value: Any) -> Any:
    """Names of a comma-separated list, as the environment gives them."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


ModelNames = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]
PackageNames = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ...], NoDecode, BeforeValidator(_names)
]

Namespace = Annotated[str, Field(min_length=1, max_length=LONGEST_NAMESPACE), AfterValidator(check_namespace)]

AttemptStyle = Literal["auto", "fresh", "revise"]
Reviewed = Literal["off", "answer", "attempt", "both"]


def model_field(role: str) -> Any:
    """The field for the model of a role."""
    node = role.lower()
    return Field(
        default=None,
        title=f"{role} model",
        description=f"Model of the {node}; empty for the common one.",
        json_schema_extra={"langgraph_nodes": [node], "langgraph_type": "model"},
    )


def _checked(prompt: str, text: str | None) -> str | None:
    if not text or not text.strip():
        return None
    check_system(prompt, text)
    return text.strip()


def prompt_field(role: str, needed: str = "") -> Any:
    """The field for the system message of a role, which has to hold what is `needed`."""
    node = role.lower()
    must = f" It must hold {needed}." if needed else ""
    return Field(
        default=None,
        title=f"{role} prompt",
        description=f"System message of the {node} in place of the file's; empty for that.{must}",
        json_schema_extra={"langgraph_nodes": [node], "langgraph_type": "prompt"},
    )


ActorPrompt = Annotated[str | None, AfterValidator(partial(_checked, "actor"))]
EvaluatorPrompt = Annotated[str | None, AfterValidator(partial(_checked, "critic"))]
ReflectorPrompt = Annotated[str | None, AfterValidator(partial(_checked, "reflector"))]
PlannerPrompt = Annotated[str | None, AfterValidator(partial(_checked, "planner"))]


def as_form(schema: dict[str, Any]) -> None:
    """Make the JSON schema one of a form: what may be left empty is not required, rather than of two types."""
    for field in schema["properties"].values():
        kinds = field.get("anyOf", [])
        if {"type": "null"} in kinds:
            del field["anyOf"], field["default"]
            field.update(kinds[0])
