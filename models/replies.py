"""Takes the answer out of whatever shape a chat model's message has."""

import re
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

_OPENS = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_CLOSES = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_ANY_OPENS = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_REFUSING = {"content_filter", "refusal"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered, without its reasoning."""

    text: str
    truncated: bool = False
    """Cut off at the output limit: not to be trusted as complete."""

    refusal: str = ""
    """Why the model or its endpoint would not answer; empty where it did."""

    arguments: dict[str, Any] | None = None
    """Arguments of the first tool call, where one was asked for."""


def read_reply(message: AIMessage) -> Reply:
    """Read a message: content as text or as blocks, reasoning dropped, refusals and cut-offs named."""
    finish = str(message.response_metadata.get("finish_reason") or "")
    text, refusal = _content(message.content)
    refusal = refusal or str(message.additional_kwargs.get("refusal") or "")
    if not refusal and finish in _REFUSING:
        refusal = f"finish reason {finish}"
    arguments = message.tool_calls[0]["args"] if message.tool_calls else None
    return Reply(
        text=strip_reasoning(text).strip(),
        truncated=finish in {"length", "max_tokens"},
        refusal=refusal,
        arguments=arguments,
    )


def strip_reasoning(text: str) -> str:
    """The text after its leading block of reasoning.

    An unclosed block is all reasoning and leaves nothing; a closing tag whose opening one was eaten by
    the chat template counts as well. A pair of tags further inside belongs to the answer and stays.
    """
    closings = list(_CLOSES.finditer(text))
    if _OPENS.match(text):
        return text[closings[-1].end() :] if closings else ""
    if closings:
        first_opening = _ANY_OPENS.search(text)
        if first_opening is None or first_opening.start() > closings[0].start():
            return text[closings[0].end() :]
    return text


def _content(content: Any) -> tuple[str, str]:
    """Text and refusal of a message's content."""
    if isinstance(content, str):
        return content, ""
    texts, refusals = [], []
    for block in content or ():
        if isinstance(block, str):
            texts.append(block)
        elif block.get("type") == "refusal":
            refusals.append(str(block.get("refusal") or "refused"))
        elif block.get("type", "text") in {"text", "output_text"}:
            texts.append(str(block.get("text") or ""))
    return "".join(texts), " ".join(refusals)
