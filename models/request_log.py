"""One structured event per request, as JSON or for the console."""

import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TextIO

from reflexion.models.errors import scrub
from reflexion.models.exchange import Exchange
from reflexion.models.usage import Call

LogFormat = Literal["off", "json", "console"]


class RequestLog:
    """A guard that logs each request when it has ended; silent unless told otherwise.

    Its logger is its own: structlog's global configuration is neither read nor changed. Prompts and replies are not
    logged. Let it be outside of the ledger, so that it logs the ledger's id.
    """

    def __init__(self, log_format: LogFormat = "off", *, stream: TextIO | None = None, logger: Any = None) -> None:
        """Choose where events go.

        Args:
            log_format: `json` for one object a line, `console` for people, `off` for nothing.
            stream: where lines are written; None for stderr.
            logger: a structlog logger of your own, instead of the two above.
        """
        self._logger = logger or _new_logger(log_format, stream or sys.stderr)

    @property
    def speaks(self) -> bool:
        """Whether it writes anything at all."""
        return self._logger is not None

    @asynccontextmanager
    async def around(self, exchange: Exchange) -> AsyncIterator[None]:
        """Log one request after it has ended, also when it failed or was cancelled."""
        try:
            yield
        finally:
            if exchange.call is not None:
                self.write(exchange, exchange.call)

    def write(self, exchange: Exchange, call: Call) -> None:
        """Log a call, also one that passed no guard, such as an answer from the cache."""
        if self._logger is None:
            return
        event = _event(exchange, call)
        method = self._logger.info if call["outcome"] in {"ok", "cached"} else self._logger.warning
        # A full disk or a closed pipe must not cost a reply that is paid for.
        with contextlib.suppress(OSError, ValueError):
            method("model_request", **event)


def _event(exchange: Exchange, call: Call) -> dict[str, Any]:
    first_s = call["first_token_s"]
    event = {
        "call": call["id"],
        "run": exchange.run_id,
        "thread": exchange.thread_id,
        "batch": exchange.batch_id,
        "role": call["role"],
        "attempt": call["attempt"],
        "retry": exchange.retry,
        "model": call["model"],
        "returned_model": call["returned_model"],
        "endpoint": exchange.endpoint,
        "prompt_tokens": call["prompt_tokens"],
        "completion_tokens": call["completion_tokens"],
        "cached_tokens": call["cached_tokens"],
        "reasoning_tokens": call["reasoning_tokens"],
        "estimated": call["estimated"],
        "cost_usd": call["cost_usd"],
        "latency_ms": round(call["latency_s"] * 1000, 1),
        "first_token_ms": None if first_s is None else round(first_s * 1000, 1),
        "outcome": call["outcome"],
    }
    if exchange.error is not None:
        event["error"] = scrub(str(exchange.error))
    return event


def _new_logger(log_format: LogFormat, stream: TextIO) -> Any:
    if log_format == "off":
        return None
    import structlog  # noqa: PLC0415 - only for those who log

    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=stream.isatty())
    )
    return structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
    )
