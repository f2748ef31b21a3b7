"""Where models are and how to reach them: read once from the environment, never part of a run's state."""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from reflexion.models.prices import Price
from reflexion.models.redaction import keep_secret

OPENAI_URL = "https://api.openai.com/v1"
_CHAT_PATH = "/chat/completions"


def normalise_base_url(url: str) -> str:
    """The base URL as clients need it: no trailing slash, no `/chat/completions`.

    Raises:
        ValueError: it is no http(s) URL, holds a key, or has no path, which nearly always means a forgotten `/v1`.
    """
    stripped = url.strip().rstrip("/")
    if re.search(r"[@?#]", stripped):
        raise ValueError("the base URL may hold no user, query or fragment: a key belongs in REFLEXION_API_KEY")
    try:
        parts = urlsplit(stripped)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"base URL {url!r} is not an http(s) address such as http://127.0.0.1:8000/v1")
    if stripped.lower().endswith(_CHAT_PATH):
        return stripped[: -len(_CHAT_PATH)]
    if not parts.path:
        raise ValueError(
            f"base URL {url!r} has no path; OpenAI-compatible endpoints mostly end in /v1: try {stripped}/v1, "
            f"or give the full …{_CHAT_PATH} address"
        )
    return stripped


def _stripped(key: SecretStr) -> SecretStr:
    """The key without the line break that a file or a paste leaves at its end, and that no header can hold."""
    return SecretStr(key.get_secret_value().strip())


def _redis(url: SecretStr) -> SecretStr:
    if not re.match(r"(?:rediss?|unix)://.", url.get_secret_value()):
        raise ValueError("is no address of a Redis such as redis://127.0.0.1:6379/0")
    return url


class ConnectionSettings(BaseSettings):
    """The endpoint and its key, from `REFLEXION_*` variables or `.env`."""

    model_config = SettingsConfigDict(
        env_prefix="REFLEXION_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
        frozen=True,
        hide_input_in_errors=True,
    )

    base_url: Annotated[str, AfterValidator(lambda url: url and normalise_base_url(url))] = ""
    """An OpenAI-compatible endpoint; empty for OpenAI itself where a key is set, else the embedded model."""

    api_key: Annotated[SecretStr, AfterValidator(_stripped)] = Field(
        default=SecretStr(""), validation_alias=AliasChoices("REFLEXION_API_KEY", "OPENAI_API_KEY")
    )

    embedded_path: Path | None = None
    """A GGUF file of your own for the embedded model."""

    connect_timeout_s: float = Field(default=10.0, gt=0)
    call_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds that one request may take in all, streaming included."""

    first_token_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds that a streamed reply may take to begin; None for as long as the whole call may take."""

    max_retries: int = Field(default=3, ge=0, le=20)
    """How often a request is repeated after a passing fault (rate limit, overload, timeout, connection)."""

    max_retry_wait_s: float = Field(default=60.0, gt=0)
    """Longest wait between two tries in seconds; a server that asks for more ends the call at once."""

    prices: dict[str, Price] = Field(default_factory=dict)
    """Prices by model name, in USD per million tokens: `{"my-model": {"input": 0.1, "output": 0.4}}`."""

    requests_per_minute: float | None = Field(default=None, gt=0)
    """Rate limit per endpoint and model; None for none."""

    tokens_per_minute: float | None = Field(default=None, gt=0)
    """The same in tokens of prompt and reply together."""

    concurrency: int | None = Field(default=None, gt=0)
    """Requests in flight at once, per endpoint and model; None for any number."""

    max_queue_wait_s: float = Field(default=300.0, gt=0)
    """Seconds that a request may wait for its turn."""

    redis_url: Annotated[SecretStr, AfterValidator(_redis)] | None = None
    """A Redis through which limits and circuit breakers are shared by all processes that name it."""

    cache: bool = False
    """Answer identical requests with temperature 0 from memory."""

    log_requests: Literal["off", "json", "console"] = "off"
    """Log every request to stderr; prompts and replies are not logged."""

    trace_content: bool = True
    """Whether traces show inputs and outputs; False leaves names, times, tokens, costs and scores."""

    def model_post_init(self, _: object) -> None:
        """Keep what is secret out of traces."""
        password = urlsplit(self.redis_url.get_secret_value()).password if self.redis_url else None
        keep_secret(self.api_key.get_secret_value(), password or "")
