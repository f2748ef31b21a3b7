"""What is asked of a model, and how it goes over the wire."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from reflexion.models.capabilities import Sent
from reflexion.models.meter import Meter
from reflexion.models.replies import Reply, text_of
from reflexion.models.usage import estimate_tokens

OnToken = Callable[[str], None]

TOKENS_PER_MESSAGE = 4
"""What a chat template adds to each message: its role and its ends."""
TOKENS_PER_SCHEMA = 40
"""What goes around a schema: the name, and that it is one."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A JSON object to ask for."""

    name: str
    schema: dict[str, Any]
    """A JSON schema as strict endpoints want it: every field required, nothing else allowed, no defaults."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    messages: Sequence[BaseMessage]
    temperature: float | None
    max_tokens: int | None
    structure: Structure | None
    on_token: OnToken | None

    @property
    def prompt_tokens(self) -> int:
        """An estimate, on the safe side for the templates and schemas that endpoints add to the text."""
        return estimate_prompt(self.messages, self.structure and self.structure.schema)


def estimate_prompt(messages: Sequence[BaseMessage], *schemas: Any) -> int:
    """Tokens of a prompt and of the schemas or tools that are sent with it, if there are any, guessed by length."""
    texts = [text_of(message.content) for message in messages]
    tokens = estimate_tokens(*texts) + TOKENS_PER_MESSAGE * len(texts)
    for schema in filter(None, schemas):
        tokens += estimate_tokens(json.dumps(schema, default=str)) + TOKENS_PER_SCHEMA
    return tokens


def to_wire(model: BaseChatModel, request: Request, sent: Sent) -> dict[str, Any]:
    """Parameters as ChatOpenAI takes them.

    What goes into `extra_body` passes LangChain by, which would rename `max_tokens`, and would parse a reply to a
    `response_format` and raise where it is cut off.
    """
    wire: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    if sent.temperature:
        wire["temperature"] = request.temperature
    if sent.max_tokens is not None:
        extra[sent.limit_name] = sent.max_tokens
    if request.structure:
        spec = {"name": request.structure.name, "strict": True}
        schema = request.structure.schema
        match sent.rung:
            case "json_schema":
                extra["response_format"] = {"type": "json_schema", "json_schema": spec | {"schema": schema}}
            case "tool":
                wire["tools"] = [{"type": "function", "function": spec | {"parameters": schema}}]
                wire["tool_choice"] = {"type": "function", "function": {"name": request.structure.name}}
            case "json_object":
                extra["response_format"] = {"type": "json_object"}
    if extra:
        wire["extra_body"] = (getattr(model, "extra_body", None) or {}) | extra
    return wire


def speaks_openai(model: BaseChatModel) -> bool:
    """Whether the model takes the parameters of chat completions."""
    from langchain_openai.chat_models.base import BaseChatOpenAI  # noqa: PLC0415 - slow to import

    return isinstance(model, BaseChatOpenAI) and not model.use_responses_api


class Completer(Protocol):
    """What answers prompts: one model, or several behind each other."""

    name: str
    embedded: bool
    """Whether it is the embedded model, whose own judgement is worth little."""

    async def complete(
        self,
        messages: Sequence[BaseMessage],
        meter: Meter,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        structure: Structure | None = None,
        on_token: OnToken | None = None,
    ) -> Reply:
        """Ask for one reply; see `ChatClient.complete`."""
        ...
