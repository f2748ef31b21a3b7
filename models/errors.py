"""What can go wrong between us and a model, and whether asking again can help."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

ErrorKind = Literal[
    "actor_failed",
    "auth",
    "bad_request",
    "billing",
    "connection",
    "content_filter",
    "context_length",
    "invalid_reply",
    "not_found",
    "overloaded",
    "rate_limit",
    "refused",
    "timeout",
]

RETRYABLE: frozenset[ErrorKind] = frozenset({"connection", "invalid_reply", "overloaded", "rate_limit", "timeout"})
CONFIGURATION: frozenset[ErrorKind] = frozenset({"auth", "bad_request", "not_found"})
"""Kinds that a change of the settings mends, and waiting does not."""

_SECRETS = re.compile(r"\b(?:sk|pk|gsk|xai|key|lsv2)[-_][A-Za-z0-9_\-*.]{6,}|(?<=Bearer )\S+")
_BILLING = re.compile(
    r"insufficient[_ ](?:quota|balance|funds|credit)|balance (?:is )?(?:empty|insufficient)|billing"
    r"|payment required|credit balance",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"context[_ ](?:length|size|window)|maximum context|too many tokens", re.IGNORECASE)
_FILTER = re.compile(r"content[_ ]filter|content management policy|responsible.?ai", re.IGNORECASE)


class ModelError(Exception):
    """A call that brought no usable reply."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        wait_s: float | None = None,
        parameter: str = "",
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.status = status
        self.wait_s = wait_s
        """Seconds that the server asked us to wait; None where it did not say."""
        self.parameter = parameter
        """The request parameter that the server complained of; empty where it named none."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE


def scrub(text: str) -> str:
    """The text without anything that looks like an API key."""
    return _SECRETS.sub("[key]", text)


def classify(error: Exception, *, url: str) -> ModelError:
    """Say what an exception of the OpenAI SDK, of LangChain or of the network means.

    Args:
        error: what the call raised.
        url: the address that was asked, for the message.
    """
    import openai  # noqa: PLC0415 - takes half a second to import

    if isinstance(error, ModelError):
        return error
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return ModelError("timeout", f"{url} did not answer in time")
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, url)
    if isinstance(error, openai.ContentFilterFinishReasonError):
        return ModelError("content_filter", f"{url} withheld the reply (content filter)")
    if isinstance(error, openai.APIConnectionError | ConnectionError):
        return ModelError("connection", f"no connection to {url}: {scrub(str(error))}")
    if isinstance(error, openai.APIError):
        return ModelError("overloaded", f"{url} broke off: {scrub(error.message)}")
    if type(error).__module__.split(".")[0] in {"httpx", "httpx2", "httpcore", "httpcore2"}:
        return ModelError("connection", f"the connection to {url} broke: {scrub(str(error)) or type(error).__name__}")
    if isinstance(error, ValueError | TypeError | KeyError | AttributeError):
        return ModelError(
            "invalid_reply", f"{url} sent something that is no chat completion: {scrub(str(error))[:300]}"
        )
    raise error


def _of_status(error: Any, url: str) -> ModelError:
    status: int = error.status_code
    body = error.body if isinstance(error.body, dict) else {}
    code = f"{body.get('code') or ''} {body.get('type') or ''}"
    said = scrub(str(body.get("message") or error.message))[:300]
    text = f"{code} {said}"
    kind: ErrorKind
    if status == 402 or (status in {400, 403, 429} and _BILLING.search(text)):
        kind, hint = "billing", "the account has no credit"
    elif status in {401, 403}:
        kind, hint = "auth", "check REFLEXION_API_KEY"
    elif status == 404:
        kind, hint = "not_found", "check the model's name and REFLEXION_BASE_URL"
    elif status == 429:
        kind, hint = "rate_limit", "the endpoint limits the rate"
    elif status in {408, 504}:
        kind, hint = "timeout", "the endpoint timed out"
    elif status >= 500 or status == 409:
        kind, hint = "overloaded", "the endpoint is in trouble"
    elif _CONTEXT.search(text):
        kind, hint = "context_length", "the prompt is too long for the model"
    elif _FILTER.search(text):
        kind, hint = "content_filter", "the endpoint's content filter refused"
    else:
        kind, hint = "bad_request", "the endpoint refuses the request"
    return ModelError(
        kind,
        f"{hint}: {url} answered {status}: {said}",
        status=status,
        wait_s=_asked_wait_s(error.response.headers),
        parameter=str(body.get("param") or ""),
    )


def _asked_wait_s(headers: Any) -> float | None:
    """Seconds to wait by `retry-after-ms` or `Retry-After` (seconds or an HTTP date); None for nonsense."""
    try:
        if milliseconds := headers.get("retry-after-ms"):
            wait = float(milliseconds) / 1000
        elif value := headers.get("retry-after"):
            wait = _seconds(value)
        else:
            return None
    except (ValueError, TypeError):
        return None
    return wait if 0 <= wait < float("inf") else None


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
