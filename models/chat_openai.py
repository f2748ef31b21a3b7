"""ChatOpenAI as this project needs it: refusals survive a stream, and errors show no key."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from reflexion.models.answer import ASIDE
from reflexion.models.errors import classify


class CarefulChatOpenAI(ChatOpenAI):
    """Raises `ModelError` before a tracer sees the original, which may repeat the key.

    LangChain keeps `refusal` of whole replies only; a streamed one would read as an empty answer. It drops streamed
    reasoning, which is what the first token mostly is, and what has to be paid for.
    """

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        with self._classified():
            return await super()._agenerate(messages, stop, run_manager, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        with self._classified():
            async for chunk in super()._astream(*args, **kwargs):
                yield chunk

    @contextmanager
    def _classified(self) -> Iterator[None]:
        key = self.openai_api_key
        try:
            yield
        except Exception as error:  # noqa: BLE001 - `classify` knows every kind, and none may pass with a key in it
            secret = key.get_secret_value() if isinstance(key, SecretStr) else ""
            raise classify(error, url=str(self.openai_api_base), secret=secret) from None

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        generation = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        choices = chunk.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        for key in ASIDE:
            if generation is not None and delta.get(key):
                generation.message.additional_kwargs[key] = delta[key]
        return generation
