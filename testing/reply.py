"""What the server answers, as a value: the words, the envelope around them and the way they travel."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self, TypeAlias


@dataclass(frozen=True)
class Reply:
    """One scripted answer; it serves streaming and plain requests alike. Durations are in seconds."""

    content: str | list[Any] | dict[str, Any] | None = None
    """The assistant's words or content parts. A dict is structured output: the arguments of the tool that the
    request offers (the forced one, else the first), or JSON text when it offers none."""

    _: KW_ONLY

    status: int = 200
    """HTTP status. From 400 up, without `body`, OpenAI's error object is sent, with `content` as message."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Extra response headers; they replace the server's own of the same name."""

    body: bytes | str | dict[str, Any] | list[Any] | None = None
    """Sent instead of OpenAI's envelope: a dict or list as JSON, bytes and text as they are (text/plain)."""

    finish_reason: str | None = "stop"
    """Sent as it is, except that "stop" becomes "tool_calls" when tools are called."""

    refusal: str | None = None
    reasoning_content: str | None = None

    tool_calls: Sequence[dict[str, Any]] = ()
    """Tool calls in OpenAI's form; `Reply.tool` builds one."""

    usage: dict[str, Any] | Literal["auto", "missing"] | None = "auto"
    """"auto" counts by `prompt_tokens` and, over content, refusal and tool arguments, by `count_tokens`;
    "missing" leaves the key out; None sends null; a dict goes as it is."""

    cached_tokens: int | None = None
    """With `usage="auto"`: how many of the prompt tokens were cached."""

    reasoning_tokens: int | None = None
    """With `usage="auto"`: reasoning tokens, added to the completion tokens as OpenAI does."""

    model: str | None = None
    """Model name in the answer; None repeats the requested one."""

    delay_s: float = 0.0
    """Silence before the first byte."""

    hang: bool = False
    """Accept and never answer, until the client leaves, the server closes or its `patience_s` is over."""

    drop: bool = False
    """Close the connection without a single byte."""

    cut_after: int | None = None
    """Close the connection in mid-answer: after this many SSE events, or bytes of a plain body."""

    stall_after: int | None = None
    """Fall silent in mid-answer, socket open: after this many SSE events, or bytes of a plain body."""

    drip_s: float = 0.0
    """Seconds before each single byte of the body."""

    chunks: Sequence[dict[str, Any] | str] | None = None
    """The exact SSE payloads of a streamed answer, instead of those made from `content`."""

    stream_usage: Literal["asked", "none", "last", "final", "every"] = "asked"
    """Where a stream carries usage. "asked": as OpenAI, in a final chunk with empty choices if the request
    set `stream_options.include_usage`; "final": that chunk, asked or not; "last": in the chunk that has the
    finish reason; "every": in every chunk; "none": nowhere."""

    done: bool = True
    """Whether a stream ends with `[DONE]`; False ends it properly but without."""

    @classmethod
    def tool(cls, name: str, arguments: dict[str, Any] | str, **options: Any) -> Self:
        """A call of the tool `name`; `arguments` given as text go out as they are, however broken."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": text}}
        return cls(tool_calls=[call], **options)

    @classmethod
    def error(
        cls,
        status: int,
        message: str,
        *,
        code: str | None = None,
        type: str = "invalid_request_error",  # noqa: A002 - the field's name in OpenAI's error object
        param: str | None = None,
        **options: Any,
    ) -> Self:
        """A failure in OpenAI's shape, for example `Reply.error(429, "quota", code="insufficient_quota")`."""
        error = {"message": message, "type": type, "param": param, "code": code}
        return cls(status=status, body={"error": error}, **options)


Scripted: TypeAlias = str | dict[str, Any] | Reply
"""A reply, or the content of one."""

Script: TypeAlias = Scripted | Callable[[dict[str, Any]], Scripted]
"""What a queue or a default holds: a reply, or a function from the request's body to one."""
