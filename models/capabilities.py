"""What an endpoint has been found not to support, so that each discovery is paid for once."""

import re
from dataclasses import dataclass, field
from typing import Literal

from reflexion.models.errors import ModelError

Rung = Literal["json_schema", "tool", "json_object", "plain"]
LADDER: tuple[Rung, ...] = ("json_schema", "tool", "json_object", "plain")
"""Ways to ask for JSON, strictest first."""

LimitName = Literal["max_completion_tokens", "max_tokens", "none"]

_RUNG_WORDS = {
    "json_schema": re.compile(
        r"response_?format|json_?schema|\bschema|structured|\bstrict\b|additional_?properties|grammar", re.IGNORECASE
    ),
    "tool": re.compile(r"\btool|\bfunction|\bschema|\bstrict\b|additional_?properties", re.IGNORECASE),
    "json_object": re.compile(r"response_?format|json_?object|\bword '?json|'json'", re.IGNORECASE),
}
_STREAM_USAGE = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_MAX_TOKENS = re.compile(r"max_(?:completion_)?tokens", re.IGNORECASE)
_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)
_TOO_LARGE = re.compile(r"too (?:large|high|big)|at most|maximum|exceed|range|less than|<=", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*\d(?![\w-])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a request held of the parameters that endpoints are known to refuse."""

    rung: Rung = "plain"
    stream_usage: bool = False
    temperature: bool = False
    max_tokens: int | None = None
    limit_name: LimitName = "none"


@dataclass(slots=True)
class Capabilities:
    """What one model at one endpoint takes; starts with everything and only ever loses."""

    rung: Rung = "json_schema"
    stream_usage: bool = True
    temperature: bool = True
    max_tokens: LimitName = "max_completion_tokens"
    longest_reply: int | None = None
    """Tokens; the largest output limit that it takes, where it has said so."""
    learned: list[str] = field(default_factory=list)
    """What was found out, in words, for `reflexion doctor` and the log."""

    def learn(self, error: ModelError, sent: Sent) -> bool:
        """Give up what the endpoint complained of.

        Only the endpoint's own words count: an address may hold any word.

        Args:
            error: a refusal of the request as it was sent.
            sent: what that request held, which a request at the same time may have given up meanwhile.

        Returns:
            Whether asking again is not asking the same.
        """
        if error.kind not in {"bad_request", "context_length"}:
            return False
        about = f"{error.parameter} {error.said}"
        if sent.max_tokens is not None and _MAX_TOKENS.search(about):
            return self._limit_less(error, sent.max_tokens, sent.limit_name)
        if error.kind == "context_length":
            return False
        if sent.stream_usage and _STREAM_USAGE.search(about):
            if self.stream_usage:
                self.stream_usage = False
                self._note("no usage in streams")
            return True
        if sent.temperature and _TEMPERATURE.search(about):
            if self.temperature:
                self.temperature = False
                self._note("no temperature")
            return True
        words = _RUNG_WORDS.get(sent.rung)
        if words and words.search(about):
            if self.rung == sent.rung:
                self.rung = LADDER[LADDER.index(sent.rung) + 1]
                self._note(f"no {sent.rung}")
            return True
        return False

    def _limit_less(self, error: ModelError, sent: int, name: LimitName) -> bool:
        cap = _stated_cap(error.said, sent)
        if cap is not None:
            if self.longest_reply is None or cap < self.longest_reply:
                self.longest_reply = cap
                self._note(f"no reply longer than {cap} tokens")
            return True
        if error.kind == "context_length":
            return False
        if self.max_tokens == name:
            renamed = name == "max_completion_tokens"
            self.max_tokens = "max_tokens" if renamed else "none"
            self._note("max_tokens instead of max_completion_tokens" if renamed else "no output limit")
        return True

    def _note(self, text: str) -> None:
        self.learned.append(text)


def _stated_cap(said: str, sent: int) -> int | None:
    """The limit that an endpoint names when it finds ours too large; half of it where it is the whole context."""
    if not _TOO_LARGE.search(said):
        return None
    smaller = [n for n in (int(digits.replace(",", "")) for digits in _WHOLE_NUMBER.findall(said)) if n < sent]
    if not smaller:
        return None
    return max(smaller) // 2 if "context" in said.lower() else max(smaller)


_KNOWN: dict[tuple[str, str], Capabilities] = {}


def capabilities_of(base_url: str, model: str) -> Capabilities:
    """The record of a model at an endpoint, shared by the whole process."""
    return _KNOWN.setdefault((base_url, model), Capabilities())
