"""Asks a model for a JSON object and makes the best of what comes back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import ValidationError

from reflexion.models.lenient_json import find_object
from reflexion.models.meter import Meter
from reflexion.models.replies import Reply
from reflexion.models.request import Completer, Structure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What was understood of a structured reply."""

    value: T | None
    """None where even the second reply could not be read."""

    problem: str = ""
    """Why not."""

    raw: str = ""
    """The last reply as it came."""


async def ask_structured(
    client: Completer,
    messages: Sequence[BaseMessage],
    meter: Meter,
    structure: Structure,
    parse: Callable[[Reply], T],
    *,
    temperature: float | None = None,
) -> Read[T]:
    """Ask, read, and ask at most once more, showing what was wrong.

    Args:
        client: the model.
        messages: the prompt; it has to name the fields and the word JSON itself, since most endpoints do
            not show the schema to the model.
        meter: see `ChatClient.complete`.
        structure: the JSON object to ask for.
        parse: makes a value of the reply; raises ValueError with what is wrong.
        temperature: see `ChatClient.complete`.

    Raises:
        ModelError: as `ChatClient.complete`.
    """
    prompt, problem, raw = list(messages), "", ""
    for _ in range(2):
        reply = await client.complete(prompt, meter, temperature=temperature, structure=structure)
        try:
            return Read(_parsed(reply, parse), raw=reply.text)
        except ValueError as error:
            problem, raw = _in_words(error), reply.text
        prompt += [AIMessage(raw or "(empty)"), HumanMessage(_AGAIN.format(problem=problem[:300]))]
    return Read(None, problem=problem, raw=raw)


_AGAIN = "That reply cannot be used: {problem}. Reply again with the complete JSON object and nothing else."


def _in_words(error: ValueError) -> str:
    """What is wrong with a reply, short enough for a small model, which else takes the error for its subject."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"`{'.'.join(map(str, problem['loc']))}` "
        + _SHORT.get(problem["type"], problem["msg"].removeprefix("Value error, "))
        for problem in error.errors(include_url=False, include_input=False)
    )


_SHORT = {"missing": "is missing", "string_too_short": "is empty"}


def _parsed(reply: Reply, parse: Callable[[Reply], T]) -> T:
    if reply.truncated:
        raise ValueError("it was cut off at the output limit; be shorter")
    return parse(reply)


def object_of(reply: Reply) -> dict[str, Any]:
    """The JSON object of a reply: the tool call's arguments, or what its text holds.

    Raises:
        ValueError: there is none.
    """
    return find_object(reply.text) if reply.arguments is None else reply.arguments


def strict_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema of an object as strict endpoints want it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
