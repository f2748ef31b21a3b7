"""ChatOpenAI that does not lose a refusal when it streams."""

from typing import Any

from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI


class RefusingChatOpenAI(ChatOpenAI):
    """LangChain keeps `refusal` of whole replies only; a streamed one would read as an empty answer."""

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        generation = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        choices = chunk.get("choices") or [{}]
        refusal = (choices[0].get("delta") or {}).get("refusal")
        if generation is not None and refusal:
            generation.message.additional_kwargs["refusal"] = refusal
        return generation
