"""What came back of a request so far, so that a broken one can still be booked."""

import json
import time
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from reflexion.models.errors import ModelError
from reflexion.models.replies import text_of


class Answer:
    """One request's answer, as its parts arrive."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.parts: list[AIMessage] = []
        self.first_token_s: float | None = None
        """When the first piece of a stream came: of text, reasoning, a refusal or a tool's arguments."""
        self._whole: AIMessage | None = None

    def add(self, part: BaseMessage, said: Mapping[str, Any] | None = None) -> None:
        """Take one part, or the whole, with what was said about it outside of its message."""
        if not isinstance(part, AIMessage):
            raise ModelError("invalid_reply", f"expected an AI message, got {type(part).__name__}")
        if self.first_token_s is None and isinstance(part, AIMessageChunk) and _says_something(part):
            self.first_token_s = round(self.elapsed_s(), 4)
        if said:
            part = part.model_copy(update={"response_metadata": {**said, **part.response_metadata}})
        self.parts.append(part)
        self._whole = None

    def elapsed_s(self) -> float:
        """Seconds since the request was made."""
        return time.monotonic() - self._started

    @property
    def message(self) -> AIMessage:
        """The whole answer. Of usage and finish reason the last ones count, where servers repeat them."""
        if self._whole is None:
            self._whole = self._merged()
        return self._whole

    def check_ended(self, where: str) -> None:
        """See that a stream was not cut off.

        Raises:
            ModelError: it did not say why it ended.
        """
        if not self.message.response_metadata.get("finish_reason"):
            raise ModelError("connection", f"the stream of {where} ended before its end")

    def _merged(self) -> AIMessage:
        if not self.parts:
            raise ModelError("invalid_reply", "the stream was empty")
        chunks = [part for part in self.parts if isinstance(part, AIMessageChunk)]
        if not chunks:
            return self.parts[0]
        texts = [chunk.content for chunk in chunks if isinstance(chunk.content, str)]
        if len(texts) == len(chunks) and not any(chunk.tool_call_chunks or chunk.additional_kwargs for chunk in chunks):
            whole = AIMessageChunk(content="".join(texts))  # what adding makes of them, which takes much longer
        else:
            bare = [chunk.model_copy(update={"response_metadata": {}, "usage_metadata": None}) for chunk in chunks]
            whole = bare[0] + bare[1:] if len(bare) > 1 else bare[0]
        whole.usage_metadata = next((c.usage_metadata for c in reversed(chunks) if c.usage_metadata), None)
        for chunk in chunks:
            said = {key: value for key, value in chunk.response_metadata.items() if value is not None}
            whole.response_metadata.update(said)
        return whole


def spoken(message: AIMessage) -> list[str]:
    """All that a model wrote: text, refusal, reasoning and tool arguments."""
    extra = message.additional_kwargs
    calls = [json.dumps(call["args"]) for call in message.tool_calls]
    broken = [str(call["args"]) for call in message.invalid_tool_calls]
    return [text_of(message.content), *(str(extra.get(key) or "") for key in ASIDE), *calls, *broken]


ASIDE = ("refusal", "reasoning_content")
"""What endpoints send beside the content."""


def _says_something(part: AIMessageChunk) -> bool:
    return bool(text_of(part.content) or part.tool_call_chunks or any(part.additional_kwargs.get(key) for key in ASIDE))
