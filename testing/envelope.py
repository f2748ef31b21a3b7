"""From a scripted reply to bytes: OpenAI's completion object, its stream of chunks, its error object."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from reflexion.testing.reply import Reply
from reflexion.testing.tokens import count_tokens, prompt_tokens
from reflexion.testing.wire import Response

_PIECE_CHARACTERS = 5
_CREATED = 1_767_225_600  # a fixed date, so that two runs of a test compare equal


def render(reply: Reply, request: dict[str, Any], index: int) -> Response:
    """The response to `request`, the server's request number `index`."""
    if reply.body is not None:
        kind = "application/json" if isinstance(reply.body, dict | list) else "text/plain; charset=utf-8"
        return _plain(reply, _as_bytes(reply.body), kind)
    if reply.status >= 400:
        message = reply.content if isinstance(reply.content, str) else f"scripted status {reply.status}"
        kind = "server_error" if reply.status >= 500 else "invalid_request_error"
        error = {"message": message, "type": kind, "param": None, "code": None}
        return _plain(reply, _as_bytes({"error": error}), "application/json")
    if request.get("stream"):
        payloads = list(_chunks(reply, request, index) if reply.chunks is None else reply.chunks)
        return _events(reply, [*payloads, "[DONE]"] if reply.done else payloads)
    return _plain(reply, _as_bytes(_completion(reply, request, index)), "application/json")


def _usage(reply: Reply, request: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(reply.usage, str):
        return reply.usage
    message = _message(reply, request)
    calls = message.get("tool_calls", ())
    spoken = [message["content"], reply.refusal, *(call["function"]["arguments"] for call in calls)]
    prompt = prompt_tokens(request)
    completion = sum(map(count_tokens, spoken)) + (reply.reasoning_tokens or 0)
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if reply.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": reply.cached_tokens}
    if reply.reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reply.reasoning_tokens}
    return usage


def _message(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    calls, content = list(reply.tool_calls), reply.content
    if isinstance(content, dict):
        text = json.dumps(content)
        name = _offered_tool(request)
        content = None if name else text
        calls += Reply.tool(name, text).tool_calls if name else ()
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": reply.refusal}
    if reply.reasoning_content is not None:
        message["reasoning_content"] = reply.reasoning_content
    if calls:
        message["tool_calls"] = calls
    return message


def _offered_tool(request: dict[str, Any]) -> str | None:
    choice, tools = request.get("tool_choice"), request.get("tools")
    if choice == "none" or not tools:
        return None
    return str((choice if isinstance(choice, dict) else tools[0])["function"]["name"])


def _finish_reason(reply: Reply, message: dict[str, Any]) -> str | None:
    called = "tool_calls" in message and reply.finish_reason == "stop"
    return "tool_calls" if called else reply.finish_reason


def _envelope(reply: Reply, request: dict[str, Any], index: int, kind: str) -> dict[str, Any]:
    model = request.get("model", "") if reply.model is None else reply.model
    return {"id": f"chatcmpl-{index}", "object": kind, "created": _CREATED, "model": model}


def _completion(reply: Reply, request: dict[str, Any], index: int) -> dict[str, Any]:
    message = _message(reply, request)
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply, message)}
    usage = {} if reply.usage == "missing" else {"usage": _usage(reply, request)}
    return {**_envelope(reply, request, index, "chat.completion"), "choices": [choice], **usage}


def _chunks(reply: Reply, request: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """Deltas of a few characters each, the finish reason, and usage where `stream_usage` wants it."""
    envelope = _envelope(reply, request, index, "chat.completion.chunk")
    message = _message(reply, request)
    asked = bool((request.get("stream_options") or {}).get("include_usage"))
    place = ("final" if asked else "none") if reply.stream_usage == "asked" else reply.stream_usage
    if reply.usage == "missing":
        place = "none"
    usage = _usage(reply, request)

    def chunk(delta: dict[str, Any], finish: str | None, value: dict[str, Any] | None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        # OpenAI sends a null in all chunks but the final one, once usage was asked for.
        return {**envelope, "choices": choices, **({} if place == "none" else {"usage": value})}

    for delta in _deltas(message):
        yield chunk(delta, None, usage if place == "every" else None)
    finish = _finish_reason(reply, message)
    yield chunk({}, finish, usage if place in {"last", "every"} else None)
    if place == "final":
        yield {**envelope, "choices": [], "usage": usage}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for key in ("reasoning_content", "content", "refusal"):
        value = message.get(key)
        for piece in _pieces(value) if isinstance(value, str) else [value] if value else ():
            yield {key: piece}
    for position, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": position, "function": {**function, "arguments": ""}}]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": position, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[i : i + _PIECE_CHARACTERS] for i in range(0, len(text), _PIECE_CHARACTERS))


def _events(reply: Reply, payloads: list[dict[str, Any] | str]) -> Response:
    texts = (payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads)
    frames = [f"data: {text}\n\n".encode() for text in texts]
    limit, ending = _ending(reply)
    headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
    return Response(
        reply.status,
        _headers(headers, reply.headers),
        frames[:limit],
        chunked=True,
        ending=ending,
        drip_s=reply.drip_s,
    )


def _plain(reply: Reply, body: bytes, content_type: str) -> Response:
    limit, ending = _ending(reply)
    headers = {"content-type": content_type, "content-length": str(len(body))}
    return Response(reply.status, _headers(headers, reply.headers), [body[:limit]], ending=ending, drip_s=reply.drip_s)


def _ending(reply: Reply) -> tuple[int | None, Literal["finish", "cut", "stall"]]:
    if reply.cut_after is not None:
        return reply.cut_after, "cut"
    if reply.stall_after is not None:
        return reply.stall_after, "stall"
    return None, "finish"


def _headers(own: Mapping[str, str], scripted: Mapping[str, str]) -> dict[str, str]:
    return {**own, **{name.lower(): value for name, value in scripted.items()}}


def _as_bytes(body: bytes | str | dict[str, Any] | list[Any]) -> bytes:
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()
