"""What can go wrong between us and a model, and whether asking again can help."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

ErrorKind = Literal[
    "actor_failed",
    "auth",
    "bad_request",
    "billing",
    "circuit_open",
    "connection",
    "content_filter",
    "context_length",
    "failed",
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

_HINTS: dict[ErrorKind, str] = {
    "auth": "check REFLEXION_API_KEY",
    "bad_request": "the endpoint refuses the request",
    "billing": "the account has no credit",
    "content_filter": "the endpoint's content filter refused",
    "context_length": "the prompt is too long for the model",
    "not_found": "check the model's name and REFLEXION_BASE_URL",
    "overloaded": "the endpoint is in trouble",
    "rate_limit": "the endpoint limits the rate",
    "timeout": "the endpoint timed out",
}

_SECRETS = re.compile(r"\b(?:sk|pk|gsk|xai|key|lsv2)[-_][A-Za-z0-9_\-*.]{6,}|(?<=Bearer )\S+")
_SHORTEST_SECRET = 8
"""Characters. Local endpoints take keys such as `none`, which are words of any text."""

_BILLING = re.compile(
    r"insufficient[_ ](?:account[_ ])?(?:quota|balance|funds|credits?)|billing|payment required|credit balance"
    r"|balance (?:is )?(?:empty|exhausted|insufficient|not enough|too low)|(?:out of|no|not enough) credits?\b",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[_ ](?:length|size|window)|maximum context|too many tokens|prompt is too long", re.IGNORECASE
)
_FILTER = re.compile(r"content[_ ]filter|content management policy|responsible.?ai", re.IGNORECASE)
_AGAIN_IN = re.compile(
    r"(?:again|retry) (?:in|after) (?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?) ?(ms|s))?", re.IGNORECASE
)

_SAID_LENGTH = 500
"""Characters of an endpoint's words that are kept."""


class ModelConfigurationError(ValueError):
    """Settings that name no usable model; says what to set."""


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
        said: str = "",
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.status = status
        """HTTP status; None where there was no answer."""
        self.wait_s = wait_s
        """Seconds that the server asked us to wait; None where it did not say."""
        self.parameter = parameter
        """The request parameter that the server complained of; empty where it named none."""
        self.said = said
        """The server's own words."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE


def scrub(text: str, secret: str = "") -> str:
    """The text without `secret` and without anything that looks like an API key."""
    if len(secret) >= _SHORTEST_SECRET:
        text = text.replace(secret, "[key]")
    return _SECRETS.sub("[key]", text)


def classify(error: Exception, *, url: str, secret: str = "") -> ModelError:
    """Say what an exception of the OpenAI SDK, of LangChain or of the network means.

    Args:
        error: what the call raised.
        url: the address that was asked, for the message.
        secret: the key that the message must not repeat.
    """
    import openai  # noqa: PLC0415 - takes half a second to import

    if isinstance(error, ModelError):
        return error
    if isinstance(getattr(error, "status_code", None), int) and error.status_code >= 400:  # type: ignore[attr-defined]
        return _of_status(error, url, secret)
    said = scrub(str(error), secret)[:_SAID_LENGTH]
    if isinstance(error, openai.APIError) and not isinstance(
        error, openai.APIConnectionError | openai.APIResponseValidationError
    ):
        return _of_body(error.body, said, url, secret)
    if isinstance(error, ValueError) and error.args and isinstance(error.args[0], dict):
        return _of_body(error.args[0], said, url, secret)
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return ModelError("timeout", f"{url} did not answer in time")
    if (
        isinstance(error, openai.APIConnectionError | ConnectionError)
        or type(error).__module__.split(".")[0] in _HTTP_LIBRARIES
    ):
        return ModelError("connection", f"no connection to {url}, or it broke: {said or type(error).__name__}")
    if isinstance(error, ValueError | TypeError | LookupError | AttributeError | openai.APIResponseValidationError):
        return ModelError("invalid_reply", f"{url} sent something that is no chat completion: {said}")
    return ModelError("failed", f"{url} failed: {type(error).__name__}: {said}")


_HTTP_LIBRARIES = {"httpx", "httpx2", "httpcore", "httpcore2"}


def _of_status(error: Any, url: str, secret: str) -> ModelError:
    """An error status, as the SDKs of OpenAI and of others raise it."""
    given = getattr(error, "body", None)
    body = given if isinstance(given, dict) else {}
    said = scrub(_words(given) or str(error), secret)[:_SAID_LENGTH]
    kind = _kind(error.status_code, f"{body.get('code') or ''} {body.get('type') or ''} {said}")
    return ModelError(
        kind,
        f"{_HINTS[kind]}: {url} answered {error.status_code}: {said}",
        status=error.status_code,
        wait_s=_asked_wait_s(getattr(getattr(error, "response", None), "headers", {}), said),
        parameter=str(body.get("param") or ""),
        said=said,
    )


def _of_body(body: Any, said: str, url: str, secret: str) -> ModelError:
    """An error object where a reply was due, in a stream or with status 200: its code says what a status would."""
    fields = body if isinstance(body, dict) else {}
    said = scrub(_words(body) or said, secret)[:_SAID_LENGTH]
    code = str(fields.get("code") or "")
    text = f"{code} {fields.get('type') or ''} {said}"
    if code.isdigit() and 400 <= int(code) < 600:
        kind = _kind(int(code), text)
    elif re.search(r"rate.?limit", text, re.IGNORECASE):
        kind = _kind(429, text)
    else:
        kind = _kind(400, text)
        kind = "overloaded" if kind == "bad_request" else kind
    return ModelError(kind, f"{_HINTS[kind]}: {url} broke off: {said}", wait_s=_asked_wait_s({}, said), said=said)


def _words(body: Any) -> str:
    """What an error's body says: OpenAI's message, or the whole of a body in another form."""
    if isinstance(body, dict) and body.get("message"):
        return str(body["message"])
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False) if body else ""


def _kind(status: int, text: str) -> ErrorKind:
    if status == 402 or (status in {400, 403, 429} and _BILLING.search(text)):
        return "billing"
    if status in {401, 403}:
        return "auth"
    if status == 404:
        return "not_found"
    if status == 429:
        return "rate_limit"
    if status in {408, 504}:
        return "timeout"
    if status >= 500 or status == 409:
        return "overloaded"
    if status == 413 or _CONTEXT.search(text):
        return "context_length"
    return "content_filter" if _FILTER.search(text) else "bad_request"


def _asked_wait_s(headers: Any, said: str) -> float | None:
    """Seconds to wait by `retry-after-ms`, by `Retry-After` (seconds or an HTTP date), or by the message."""
    readers: tuple[tuple[Callable[[str], float], str], ...] = (
        (lambda text: float(text) / 1000, headers.get("retry-after-ms", "")),
        (float, headers.get("retry-after", "")),
        (_until, headers.get("retry-after", "")),
        (_in_words, said),
    )
    for read, text in readers:
        try:
            wait = read(text)
        except (ValueError, TypeError):
            continue
        if 0 <= wait < float("inf"):
            return wait
    return None


def _until(date: str) -> float:
    return (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()


def _in_words(said: str) -> float:
    """Seconds of `try again in 1m26.4s`."""
    found = _AGAIN_IN.search(said)
    if found is None or not any(found.groups()):
        raise ValueError("no wait is named")
    hours, minutes, rest, unit = found.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or 0) / (1000 if unit == "ms" else 1)
