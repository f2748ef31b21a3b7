"""What an endpoint has been found not to support, so that each discovery is paid for once."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from reflexion.models.errors import ModelError

Rung = Literal["json_schema", "tool", "json_object", "plain"]
LADDER: tuple[Rung, ...] = ("json_schema", "tool", "json_object", "plain")
"""Ways to ask for JSON, strictest first."""

_STRUCTURE = re.compile(r"response_?format|json|schema|tool|function|strict|additional_?properties", re.IGNORECASE)
_STREAM_USAGE = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_MAX_TOKENS = re.compile(r"max_(completion_)?tokens", re.IGNORECASE)
_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)


@dataclass(slots=True)
class Capabilities:
    """What one model at one endpoint takes; starts with everything and only ever loses."""

    rung: Rung = "json_schema"
    stream_usage: bool = True
    temperature: bool = True
    max_tokens: Literal["max_completion_tokens", "max_tokens", "none"] = "max_completion_tokens"
    learned: list[str] = field(default_factory=list)
    """What was found out, in words, for `reflexion doctor` and the log."""

    def learn(self, error: ModelError, sent: dict[str, Any]) -> bool:
        """Give up what the endpoint complained of.

        Args:
            error: a refusal of the request as it was sent.
            sent: the optional parameters that it held, by the names of `parameters`.

        Returns:
            Whether anything changed, so that asking again is not asking the same.
        """
        if error.kind != "bad_request":
            return False
        about = f"{error.parameter} {error}"
        if "stream_usage" in sent and _STREAM_USAGE.search(about):
            self.stream_usage = False
            return self._note("no usage in streams")
        if "temperature" in sent and _TEMPERATURE.search(about):
            self.temperature = False
            return self._note("no temperature")
        if "max_tokens" in sent and _MAX_TOKENS.search(about):
            renamed = self.max_tokens == "max_completion_tokens"
            self.max_tokens = "max_tokens" if renamed else "none"
            return self._note("max_tokens instead of max_completion_tokens" if renamed else "no output limit")
        if "structure" in sent and _STRUCTURE.search(about):
            return self.descend()
        return False

    def descend(self) -> bool:
        """Take the next rung of the ladder; False where there is none."""
        if self.rung == LADDER[-1]:
            return False
        refused = self.rung
        self.rung = LADDER[LADDER.index(refused) + 1]
        return self._note(f"no {refused}")

    def _note(self, text: str) -> bool:
        self.learned.append(text)
        return True


_KNOWN: dict[tuple[str, str], Capabilities] = {}


def capabilities_of(base_url: str, model: str) -> Capabilities:
    """The record of a model at an endpoint, shared by the whole process."""
    return _KNOWN.setdefault((base_url, model), Capabilities())
