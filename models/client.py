"""One chat model at one endpoint, called the careful way: one layer of retries, every request in the ledger."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from reflexion.models.capabilities import Capabilities, Sent, capabilities_of
from reflexion.models.errors import ModelError, classify, scrub
from reflexion.models.meter import DeadlineExceeded, Meter
from reflexion.models.prices import Prices
from reflexion.models.replies import Reply, read_reply, text_of
from reflexion.models.usage import Call, decimal_text, estimate_tokens

OnToken = Callable[[str], None]
Sleep = Callable[[float], Awaitable[None]]

TOKENS_PER_MESSAGE = 4
"""What a chat template adds to each message: its role and its ends."""
TOKENS_PER_SCHEMA = 40
"""What goes around a schema: the name, and that it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How patient a client is. Times in seconds."""

    call_timeout_s: float = 300.0
    max_retries: int = 3
    first_wait_s: float = 0.5
    max_wait_s: float = 60.0

    def wait_s(self, attempt: int, asked_s: float | None) -> float:
        """Time to wait before try number `attempt` + 1: full jitter, and never less than was asked for.

        Exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", 2015).
        """
        backoff = random.uniform(0, min(self.max_wait_s, self.first_wait_s * 2**attempt))  # noqa: S311
        return backoff if asked_s is None else asked_s + min(backoff, self.first_wait_s)


@dataclass(frozen=True, slots=True)
class Structure:
    """A JSON object to ask for."""

    name: str
    schema: dict[str, Any]
    """A JSON schema as strict endpoints want it: every field required, nothing else allowed, no defaults."""


class ChatClient:
    """Calls one model. Wraps any `BaseChatModel`; the protocol's finer points need an OpenAI-compatible one."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[BaseChatModel]],
        *,
        name: str,
        base_url: str = "",
        prices: Prices | None = None,
        policy: Policy | None = None,
        max_tokens: int | None = None,
        embedded: bool = False,
        secret: str = "",
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Remember how to reach the model; `secret` is what no message may repeat, `sleep` waits between tries."""
        self.name = name
        """The model's name, as the ledger shows it."""
        self.base_url = base_url
        self.embedded = embedded
        """True for the embedded model, whose own judgement is worth little."""
        self._connect = connect
        self._connecting = asyncio.Lock()
        self._model: BaseChatModel | None = None
        self._prices = prices or Prices()
        self._policy = policy or Policy()
        self._max_tokens = max_tokens
        self._secret = secret
        self._sleep = sleep

    @property
    def capabilities(self) -> Capabilities:
        """What this endpoint has been found to support."""
        return capabilities_of(self.base_url, self.name)

    async def complete(
        self,
        messages: Sequence[BaseMessage],
        meter: Meter,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        structure: Structure | None = None,
        on_token: OnToken | None = None,
    ) -> Reply:
        """Ask for one reply.

        Args:
            messages: the prompt.
            meter: takes the ledger lines and sets the limits.
            temperature: sampling temperature; None for the endpoint's own.
            max_tokens: the longest reply; None for the client's own limit.
            structure: a JSON object that the reply should be.
            on_token: called with each piece of text as it arrives; the reply is then streamed.

        Raises:
            ModelError: no reply could be had.
            BudgetExhausted: the run cannot pay for the call.
            DeadlineExceeded: the run has no time left for it.
        """
        if self.embedded and on_token is None:
            on_token = _unheard  # its server works on to the end of a request that nobody waits for, unless it streams
        wanted = _Request(messages, temperature, max_tokens or self._max_tokens, structure, on_token)
        tries = 0
        while True:
            model = await self._connected()
            request = self._within_limits(wanted, meter)
            sent = self._sendable(request) if _speaks_openai(model) else Sent()
            try:
                reply = await self._send(model, request, sent, meter)
            except ModelError as error:
                if self.capabilities.learn(error, sent):
                    continue
                if error.kind == "connection" and self.embedded:
                    self._model = None  # its server may have died; connecting starts another
                if not error.retryable or tries == self._policy.max_retries:
                    raise
                await self._pause(error, tries, meter)
                tries += 1
                if error.kind == "invalid_reply":
                    # Some servers answer with a whole reply, or an error, where a stream was asked for.
                    wanted = replace(wanted, on_token=None)
            else:
                if on_token and request.on_token is None:
                    on_token(reply.text)
                return reply

    async def _connected(self) -> BaseChatModel:
        async with self._connecting:
            if self._model is None:
                self._model = await self._connect()
            return self._model

    def _within_limits(self, request: "_Request", meter: Meter) -> "_Request":
        prompt_tokens = request.prompt_tokens
        limit = meter.reply_limit(
            prompt_tokens=prompt_tokens,
            wanted=request.max_tokens,
            cost_usd=lambda reply: self._cost(prompt_tokens, reply, 0),
        )
        return replace(request, max_tokens=limit)

    def _sendable(self, request: "_Request") -> Sent:
        """The optional parameters of a request, as far as the endpoint takes them."""
        known = self.capabilities
        limit = None if known.max_tokens == "none" else request.max_tokens
        if limit is not None and known.longest_reply is not None:
            limit = min(limit, known.longest_reply)
        return Sent(
            rung=known.rung if request.structure else "plain",
            stream_usage=known.stream_usage and request.on_token is not None,
            temperature=known.temperature and request.temperature is not None,
            max_tokens=limit,
            limit_name=known.max_tokens,
        )

    async def _send(self, model: BaseChatModel, request: "_Request", sent: Sent, meter: Meter) -> Reply:
        left_s = meter.left_s()
        limit_s = self._policy.call_timeout_s if left_s is None else min(left_s, self._policy.call_timeout_s)
        exchange = _Exchange()
        outcome = "ok"
        answered_with_error = False
        try:
            async with asyncio.timeout(limit_s) as scope:
                await self._exchange(model, request, sent, meter, exchange)
            reply = self._read(exchange.message)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:
            if scope.expired() and left_s is not None and left_s < self._policy.call_timeout_s:
                outcome = "deadline"
                raise DeadlineExceeded("the run's time is used up") from error
            known = classify(error, url=self.base_url or self.name, secret=self._secret)
            outcome = known.kind
            answered_with_error = known.status is not None
            if known is error:
                raise
            raise known from error
        else:
            return reply
        finally:
            meter.calls.append(self._line(meter, request, exchange, outcome, free=answered_with_error))

    async def _exchange(
        self, model: BaseChatModel, request: "_Request", sent: Sent, meter: Meter, exchange: "_Exchange"
    ) -> None:
        config: Any = {
            "run_name": meter.role,
            "tags": [meter.role],
            "metadata": {"role": meter.role, "attempt": meter.attempt},
        }
        speaks_openai = _speaks_openai(model)
        wire = _wire(model, request, sent) if speaks_openai else {}
        if request.on_token is None:
            if speaks_openai:
                # A listener such as LangGraph's `messages` stream would otherwise turn this into a stream.
                wire["stream"] = False
            exchange.add(await model.ainvoke(list(request.messages), config, **wire))
            return
        if speaks_openai:
            wire["stream_usage"] = sent.stream_usage
        async for chunk in model.astream(list(request.messages), config, **wire):
            exchange.add(chunk)
            if piece := text_of(chunk.content):
                request.on_token(piece)
        if speaks_openai and not exchange.message.response_metadata.get("finish_reason"):
            raise ModelError("connection", f"the stream of {self.base_url or self.name} ended before its end")

    def _read(self, message: AIMessage) -> Reply:
        reply = read_reply(message)
        if reply.refusal:
            raise ModelError("refused", f"{self.name} refused: {scrub(reply.refusal, self._secret)}")
        return reply

    def _line(self, meter: Meter, request: "_Request", exchange: "_Exchange", outcome: str, *, free: bool) -> Call:
        """The ledger line of a request; what the endpoint did not report is estimated, and says so.

        Args:
            meter: whose call it was.
            request: what was asked.
            exchange: what came back.
            outcome: see `Call`.
            free: an error status came instead of a reply, and nothing is charged for that.
        """
        message = exchange.message if exchange.parts else None
        usage: Any = (message.usage_metadata if message is not None else None) or {}
        spoken = 0 if message is None else estimate_tokens(*_spoken(message))
        prompt = 0 if free else usage.get("input_tokens") or request.prompt_tokens
        completion = usage.get("output_tokens") or spoken
        cached = min(prompt, (usage.get("input_token_details") or {}).get("cache_read") or 0)
        cost = self._cost(prompt, completion, cached)
        reported = usage.get("input_tokens") and (usage.get("output_tokens") or not spoken)
        return Call(
            id=uuid.uuid4().hex,
            role=meter.role,
            attempt=meter.attempt,
            model=self.name,
            returned_model="" if message is None else str(message.response_metadata.get("model_name") or ""),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            reasoning_tokens=(usage.get("output_token_details") or {}).get("reasoning") or 0,
            cost_usd=None if cost is None else decimal_text(cost),
            estimated=not (reported or free),
            latency_s=round(exchange.elapsed_s(), 4),
            first_token_s=exchange.first_token_s,
            outcome=outcome,
        )

    def _cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Decimal | None:
        return self._prices.cost_usd(
            self.name,
            self.base_url,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
        )

    def has_price(self) -> bool:
        """Whether calls have a known price."""
        return self._prices.knows(self.name, self.base_url)

    async def _pause(self, error: ModelError, tries: int, meter: Meter) -> None:
        wait_s = self._policy.wait_s(tries, error.wait_s)
        if error.wait_s is not None and error.wait_s > self._policy.max_wait_s:
            raise ModelError(
                error.kind,
                f"{error} (asked to wait {error.wait_s:g} s, more than the {self._policy.max_wait_s:g} s allowed)",
                status=error.status,
                wait_s=error.wait_s,
            ) from error
        left_s = meter.left_s()
        if left_s is not None and wait_s >= left_s:
            raise DeadlineExceeded(f"no time left to wait {wait_s:.1f} s and try again: {error}") from error
        await self._sleep(wait_s)


def _unheard(_: str) -> None:
    """Streams to nobody."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for."""

    messages: Sequence[BaseMessage]
    temperature: float | None
    max_tokens: int | None
    structure: Structure | None
    on_token: OnToken | None

    @property
    def prompt_tokens(self) -> int:
        """An estimate, on the safe side for the templates and schemas that endpoints add to the text."""
        texts = [text_of(message.content) for message in self.messages]
        tokens = estimate_tokens(*texts) + TOKENS_PER_MESSAGE * len(texts)
        if self.structure:
            tokens += estimate_tokens(json.dumps(self.structure.schema)) + TOKENS_PER_SCHEMA
        return tokens


class _Exchange:
    """One request's answer so far, so that a broken one can still be booked."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.parts: list[AIMessage] = []
        self.first_token_s: float | None = None

    def add(self, part: BaseMessage) -> None:
        if not isinstance(part, AIMessage):
            raise ModelError("invalid_reply", f"expected an AI message, got {type(part).__name__}")
        if self.first_token_s is None and isinstance(part, AIMessageChunk) and text_of(part.content):
            self.first_token_s = round(self.elapsed_s(), 4)
        self.parts.append(part)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def message(self) -> AIMessage:
        """The whole answer. Of usage and finish reason the last ones count, where servers repeat them."""
        chunks = [part for part in self.parts if isinstance(part, AIMessageChunk)]
        if not self.parts:
            raise ModelError("invalid_reply", "the stream was empty")
        if not chunks:
            return self.parts[0]
        whole = chunks[0].model_copy(update={"response_metadata": {}, "usage_metadata": None})
        bare = [chunk.model_copy(update={"response_metadata": {}, "usage_metadata": None}) for chunk in chunks[1:]]
        whole = whole + bare if bare else whole
        whole.usage_metadata = next((c.usage_metadata for c in reversed(chunks) if c.usage_metadata), None)
        for chunk in chunks:
            said = {key: value for key, value in chunk.response_metadata.items() if value is not None}
            whole.response_metadata.update(said)
        return whole


def _wire(model: BaseChatModel, request: _Request, sent: Sent) -> dict[str, Any]:
    """Parameters as ChatOpenAI takes them.

    What goes into `extra_body` passes LangChain by, which would rename `max_tokens`, and would parse a reply to a
    `response_format` and raise where it is cut off.
    """
    wire: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    if sent.temperature:
        wire["temperature"] = request.temperature
    if sent.max_tokens is not None:
        extra[sent.limit_name] = sent.max_tokens
    if request.structure:
        spec = {"name": request.structure.name, "strict": True}
        schema = request.structure.schema
        match sent.rung:
            case "json_schema":
                extra["response_format"] = {"type": "json_schema", "json_schema": spec | {"schema": schema}}
            case "tool":
                wire["tools"] = [{"type": "function", "function": spec | {"parameters": schema}}]
                wire["tool_choice"] = {"type": "function", "function": {"name": request.structure.name}}
            case "json_object":
                extra["response_format"] = {"type": "json_object"}
    if extra:
        wire["extra_body"] = (getattr(model, "extra_body", None) or {}) | extra
    return wire


def _speaks_openai(model: BaseChatModel) -> bool:
    """Whether the model takes the parameters of chat completions."""
    from langchain_openai.chat_models.base import BaseChatOpenAI  # noqa: PLC0415 - slow to import

    return isinstance(model, BaseChatOpenAI) and not model.use_responses_api


def _spoken(message: AIMessage) -> list[str]:
    """All that a model wrote: text, refusal, reasoning and tool arguments."""
    extra = message.additional_kwargs
    calls = [json.dumps(call["args"]) for call in message.tool_calls]
    broken = [str(call["args"]) for call in message.invalid_tool_calls]
    return [text_of(message.content), *(str(extra.get(key) or "") for key in _ASIDE), *calls, *broken]


_ASIDE = ("refusal", "reasoning_content")
