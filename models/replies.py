"""Takes the answer out of whatever shape a chat model's message has."""

import json
import re
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

_NAMES = r"(?:\w+:)?(?:think|thinking|thought|reasoning)"
_TAG = re.compile(
    rf"(?P<open><{_NAMES}\b[^<>/]*>|\[THINK\]|◁think▷)|(?P<close></{_NAMES}\s*>|\[/THINK\]|◁/think▷)", re.IGNORECASE
)
_TAGS_BEGIN_WITH = re.compile(r"[<\[◁]")
_REFUSING = {"content_filter", "refusal", "safety"}
_CUT = {"length", "max_tokens"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered, without its reasoning."""

    text: str
    truncated: bool = False
    """Cut off at the output limit: not to be trusted as complete."""

    refusal: str = ""
    """Why the model or its endpoint would not answer; empty where it did."""

    arguments: dict[str, Any] | None = None
    """Arguments of the tool call, where one was asked for; of several that differ none, and the text holds them all."""


def read_reply(message: AIMessage) -> Reply:
    """Read a message: content as text or as blocks, reasoning dropped, refusals and cut-offs named."""
    metadata = message.response_metadata
    finish = str(metadata.get("finish_reason") or metadata.get("stop_reason") or "").lower()
    refusal = _refusal_of(message.content) or str(message.additional_kwargs.get("refusal") or "")
    if not refusal and finish in _REFUSING:
        refusal = f"finish reason {finish}"
    text = text_of(message.content)
    if not text and message.invalid_tool_calls:
        text = str(message.invalid_tool_calls[0]["args"] or "")
    elif message.tool_calls and _arguments(message) is None:
        text = "\n".join(json.dumps(call["args"]) for call in message.tool_calls)
    return Reply(
        text=strip_reasoning(storable(text)).strip(),
        truncated=finish in _CUT,
        refusal=storable(refusal),
        arguments=storable(_arguments(message)),
    )


def _arguments(message: AIMessage) -> dict[str, Any] | None:
    given = [call["args"] for call in message.tool_calls]
    return given[0] if given and all(other == given[0] for other in given) else None


def text_of(content: Any) -> str:
    """The text of a message's content; blocks of other kinds, such as reasoning, are left out."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content or ():
        if isinstance(block, str):
            texts.append(block)
        elif block.get("type", "text") in {"text", "output_text"}:
            texts.append(str(block.get("text") or ""))
    return "".join(texts)


def _refusal_of(content: Any) -> str:
    blocks = [] if isinstance(content, str) else [block for block in content or () if isinstance(block, dict)]
    refusals = [str(block.get("refusal") or "refused") for block in blocks if block.get("type") == "refusal"]
    return " ".join(refusals)


def strip_reasoning(text: str) -> str:
    """The text after its leading blocks of reasoning.

    An unclosed block is all reasoning and leaves nothing; a closing tag whose opening one was eaten by
    the chat template counts as well. A pair of tags further inside belongs to the answer and stays.
    """
    while _TAGS_BEGIN_WITH.search(text) and (tags := list(_TAG.finditer(text))):
        leads = tags[0]["open"] is not None and not text[: tags[0].start()].strip()
        if tags[0]["open"] is not None and not leads:
            return text
        # From the end, whatever is not a pair of the answer's own is still reasoning.
        inner = tags[1:] if leads else tags
        while len(inner) > 1 and inner[-1]["close"] and inner[-2]["open"]:
            inner = inner[:-2]
        closing = next((tag for tag in reversed(inner) if tag["close"]), None)
        if closing is None:
            return ""
        text = text[closing.end() :]
    return text


def storable(value: Any) -> Any:
    """The value without what no database and no request can hold: half surrogate pairs and NUL characters."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "")
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value
