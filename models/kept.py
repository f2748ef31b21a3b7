"""Replies of a step that no checkpoint holds yet: where its process dies, the next one takes them over."""

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from typing_extensions import TypedDict

from reflexion.models.replies import Reply, text_of

LARGEST = 256 * 1024
"""Characters of JSON. A longer reply is not kept; were its process to die, it would be asked for again."""


_MARK = re.compile(r"^(</?[a-z_]+) (?:[0-9a-f]{8})+>$", re.MULTILINE)
"""A line around what a prompt quotes. Its number differs each time that the prompt is made."""


class KeptReply(TypedDict):
    """A reply and what it answers: plain JSON."""

    key: str
    text: str
    truncated: bool
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class KeptReplies:
    """One step's. What it asks for is known by step, role and prompt, and not by the model that is to be asked: which
    one that is may have changed with what is left of a budget, and the question has been answered."""

    step_id: str
    _left: dict[str, deque[KeptReply]]

    @classmethod
    def of(cls, step_id: str, kept: Iterable[KeptReply]) -> "KeptReplies":
        """Those that may be taken over, oldest first; others' do no harm."""
        left: dict[str, deque[KeptReply]] = {}
        for reply in kept:
            left.setdefault(reply["key"], deque()).append(reply)
        return cls(step_id, left)

    def key(self, role: str, messages: Sequence[BaseMessage], schema: Any) -> str:
        """What the same request of the same step has in common, whichever process makes it."""
        prompt = [(message.type, _MARK.sub(r"\1>", text_of(message.content))) for message in messages]
        text = json.dumps([self.step_id, role, prompt, schema], default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def take(self, key: str) -> Reply | None:
        """The reply that was paid for, each of them once."""
        left = self._left.get(key)
        if not left:
            return None
        kept = left.popleft()
        return Reply(kept["text"], truncated=kept["truncated"], arguments=kept["arguments"])


def kept_reply(key: str, reply: Reply) -> KeptReply | None:
    """The reply as it is kept; None where it is too long."""
    kept = KeptReply(key=key, text=reply.text, truncated=reply.truncated, arguments=reply.arguments)
    return kept if len(json.dumps(kept)) <= LARGEST else None
