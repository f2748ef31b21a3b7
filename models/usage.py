"""What calls to models used: one ledger line per HTTP request, and their sums."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from typing_extensions import TypedDict

CACHED = "cached"
"""Outcome of a request that was answered locally."""
NOT_SENT = frozenset({CACHED, "circuit_open"})
"""Outcomes of what was never sent, and so is no request."""


class Call(TypedDict):
    """One HTTP request to a model: a line of the ledger, plain JSON."""

    id: str
    role: str
    attempt: int
    model: str
    """The model that was asked for."""
    returned_model: str
    """The model that the endpoint says has answered; empty where it did not say."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Part of `prompt_tokens` that the endpoint read from its cache."""
    reasoning_tokens: int
    """Part of `completion_tokens` that was spent on hidden reasoning."""
    cost_usd: str | None
    """A decimal number; None where the price is unknown."""
    estimated: bool
    """True where the endpoint reported no usage and the tokens were counted by characters."""
    latency_s: float
    first_token_s: float | None
    outcome: str
    """`ok`, `cached`, `circuit_open` where a breaker kept it from being sent, `cancelled`, `deadline`, `lost` with its
    process, or the kind of the `ModelError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A sum of ledger lines."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal | None = Decimal(0)
    """USD; None as soon as one price is unknown."""
    estimated: bool = False
    """True as soon as one line is an estimate."""

    @classmethod
    def of(cls, calls: Iterable[Call]) -> "Usage":
        """Sum ledger lines."""
        lines = list(calls)
        costs = [line["cost_usd"] for line in lines]
        return cls(
            requests=sum(line["outcome"] not in NOT_SENT for line in lines),
            prompt_tokens=sum(line["prompt_tokens"] for line in lines),
            completion_tokens=sum(line["completion_tokens"] for line in lines),
            cached_tokens=sum(line["cached_tokens"] for line in lines),
            reasoning_tokens=sum(line["reasoning_tokens"] for line in lines),
            cost_usd=None if None in costs else sum((Decimal(c) for c in costs if c is not None), Decimal(0)),
            estimated=any(line["estimated"] for line in lines),
        )

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; the cost is a decimal string or None."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "cost_usd": None if self.cost_usd is None else decimal_text(self.cost_usd),
            "estimated": self.estimated,
        }


def decimal_text(value: Decimal) -> str:
    """The number without an exponent and without trailing zeros: `0.0000123`, `0`."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


BYTES_PER_TOKEN = 4
"""OpenAI's own rule of thumb for English text; in UTF-8 bytes it also holds roughly for other scripts."""


def estimate_tokens(*texts: str) -> int:
    """Tokens of the texts, guessed by their length in UTF-8; needs no tokenizer and no download."""
    return sum(-(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN) for text in texts)
