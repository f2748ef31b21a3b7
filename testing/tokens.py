"""The fake's token arithmetic: one token for every four characters begun, so a test can foretell a bill."""

import json
from typing import Any

_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 3


def count_tokens(content: Any) -> int:
    """Tokens of a text, of a list of content parts (their text only) or of None: ceil(characters / 4)."""
    if isinstance(content, list):
        return sum(count_tokens(part.get("text")) for part in content if isinstance(part, dict))
    return -(-len(content) // _CHARACTERS_PER_TOKEN) if isinstance(content, str) else 0


def prompt_tokens(body: dict[str, Any]) -> int:
    """Tokens of a chat request: three a message, its content, and the JSON text of any tools and schema."""
    messages = [message for message in body.get("messages") or [] if isinstance(message, dict)]
    spoken = sum(_TOKENS_PER_MESSAGE + count_tokens(message.get("content")) for message in messages)
    forms = [body[key] for key in ("tools", "response_format") if body.get(key)]
    return spoken + sum(count_tokens(json.dumps(form)) for form in forms)
