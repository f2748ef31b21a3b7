"""Requests and their ends, without a model."""

from decimal import Decimal
from typing import Any

from reflexion.models.exchange import Exchange
from reflexion.models.usage import Call, decimal_text


def per_token(usd: str):
    """A price function: so much for each token, in or out."""
    return lambda prompt, reply: Decimal(usd) * (prompt + reply)


def unpriced(prompt: int, reply: int) -> None:
    return None


def exchange(*, prompt: int = 0, reply: int = 0, usd: str | None = "0.001", **more: Any) -> Exchange:
    return Exchange(
        endpoint="http://127.0.0.1/v1",
        model="m",
        prompt_tokens=prompt,
        reply_tokens=reply,
        cost_usd=unpriced if usd is None else per_token(usd),
        **{"role": "actor", "run_id": "r", "thread_id": "t", "batch_id": "b", "attempt": 1} | more,
    )


def ended(exchange: Exchange, *, prompt: int | None = None, reply: int = 0, outcome: str = "ok", **more: Any) -> Call:
    """Fill in what a request really used, as a client does."""
    prompt = exchange.prompt_tokens if prompt is None else prompt
    cost = exchange.cost_usd(prompt, reply)
    line: dict[str, Any] = {
        "id": "of the client",
        "role": exchange.role,
        "attempt": exchange.attempt,
        "model": exchange.model,
        "returned_model": "m-1",
        "prompt_tokens": prompt,
        "completion_tokens": reply,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "cost_usd": None if cost is None else decimal_text(cost),
        "estimated": False,
        "latency_s": 0.5,
        "first_token_s": None,
        "outcome": outcome,
    }
    exchange.call = Call(**(line | more))
    return exchange.call
