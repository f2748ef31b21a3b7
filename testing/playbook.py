"""What the server was told to answer: refusals first, then the queue, then the default."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from reflexion.testing.reply import Reply, Script
from reflexion.testing.rules import Rule

CHAT_PATH, MODELS_PATH = "/v1/chat/completions", "/v1/models"


@dataclass(frozen=True)
class Recorded:
    """A request as it arrived, refused and abandoned ones included."""

    model: str
    """The requested model; "" for anything but a chat completion."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""

    body: dict[str, Any]
    """The parsed JSON object; empty when the body is none."""

    raw: bytes
    """The body byte for byte."""

    arrived: float
    """Seconds on `time.monotonic`."""

    index: int
    """0 for the server's first request."""

    @property
    def name(self) -> str:
        """What scripts and holds know this request by: its model, or its path when it has none."""
        return self.model or self.path


class Playbook:
    """Replies by model name (or by path, for names that start with "/"), and rules that come before them.

    Written by the test's threads and read by the server's: single operations on dicts, deques and lists are
    atomic, so there is no lock that could block an event loop.
    """

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key
        self._queues: dict[str, deque[Script]] = {}
        self._defaults: dict[str, Script] = {}
        self._rules: list[Rule] = []

    def script(self, name: str, replies: tuple[Script, ...]) -> None:
        """Append to the queue of `name`."""
        self._queues.setdefault(name, deque()).extend(replies)

    def default(self, name: str, reply: Script) -> None:
        """What to answer while the queue of `name` is empty."""
        self._defaults[name] = reply

    def refuse(self, rule: Rule) -> None:
        """Refuse what `rule` says."""
        self._rules.append(rule)

    def unscripted(self, record: Recorded) -> Reply | None:
        """The answer that takes nothing from a queue: wrong key, list of models, refusal; else None."""
        if self._api_key is not None and record.headers.get("authorization") != f"Bearer {self._api_key}":
            return Reply.error(401, "Incorrect API key provided", code="invalid_api_key")
        if record.path == MODELS_PATH:
            return Reply(body={"object": "list", "data": self._models()})
        if record.path != CHAT_PATH:
            return None
        if record.method != "POST" or not record.model:
            return Reply.error(400, "POST a JSON object that names a model")
        return next((rule.answer for rule in self._rules if rule.applies_to(record.body)), None)

    def scripted(self, record: Recorded) -> Reply:
        """Take the next reply for this request; 404 when there is neither queue nor default."""
        try:
            script = self._queues[record.name].popleft()
        except (KeyError, IndexError):
            if record.name not in self._defaults:
                return _not_found(record)
            script = self._defaults[record.name]
        answer = script(record.body) if callable(script) else script
        return answer if isinstance(answer, Reply) else Reply(answer)

    def _models(self) -> list[dict[str, Any]]:
        names = sorted(name for name in {*self._queues, *self._defaults} if not name.startswith("/"))
        return [{"id": name, "object": "model", "created": 0, "owned_by": "fake"} for name in names]


def _not_found(record: Recorded) -> Reply:
    if record.model:
        text = f"The model `{record.model}` does not exist (no reply is scripted for it, or none is left)"
        return Reply.error(404, text, code="model_not_found", param="model")
    return Reply.error(404, f"Invalid URL ({record.method} {record.path})")
