"""One chat model at one endpoint, called the careful way: one layer of retries, every request in the ledger."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from reflexion.models.capabilities import Capabilities, capabilities_of
from reflexion.models.errors import ModelError, classify
from reflexion.models.meter import DeadlineExceeded, Meter
from reflexion.models.prices import Prices
from reflexion.models.replies import Reply, read_reply
from reflexion.models.usage import Call, decimal_text, estimate_tokens

OnToken = Callable[[str], None]


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
    ) -> None:
        self.name = name
        """The model's name, as the ledger shows it."""
        self.base_url = base_url
        self.embedded = embedded
        """True for the embedded model, whose own judgement is worth little."""
        self._connect = connect
        self._model: BaseChatModel | None = None
        self._prices = prices or Prices()
        self._policy = policy or Policy()
        self._max_tokens = max_tokens

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
        tries = 0
        while True:
            model = await self._connected()
            sent = self._parameters(
                model, messages, meter, temperature=temperature, max_tokens=max_tokens, structure=structure
            )
            try:
                return await self._request(model, messages, meter, sent, on_token)
            except ModelError as error:
                if self.capabilities.learn(error, sent | ({"stream_usage": True} if on_token else {})):
                    continue
                if error.kind == "connection":
                    self._model = None
                if not error.retryable or tries == self._policy.max_retries:
                    raise
                await self._pause(error, tries, meter)
                tries += 1

    async def _connected(self) -> BaseChatModel:
        if self._model is None:
            self._model = await self._connect()
        return self._model

    def _parameters(
        self,
        model: BaseChatModel,
        messages: Sequence[BaseMessage],
        meter: Meter,
        *,
        temperature: float | None,
        max_tokens: int | None,
        structure: Structure | None,
    ) -> dict[str, Any]:
        """The optional parameters of a request, as far as the endpoint takes them and the budget allows."""
        prompt_tokens = estimate_tokens(*(_text(message) for message in messages))
        limit = meter.reply_limit(
            prompt_tokens=prompt_tokens,
            wanted=max_tokens or self._max_tokens,
            cost_usd=lambda reply: self._cost(prompt_tokens, reply, 0),
        )
        parameters: dict[str, Any] = {}
        if not _speaks_openai(model):
            return parameters
        if temperature is not None and self.capabilities.temperature:
            parameters["temperature"] = temperature
        if limit is not None and self.capabilities.max_tokens != "none":
            parameters["max_tokens"] = limit
        if structure and self.capabilities.rung != "plain":
            parameters["structure"] = structure
        return parameters

    async def _request(
        self,
        model: BaseChatModel,
        messages: Sequence[BaseMessage],
        meter: Meter,
        sent: dict[str, Any],
        on_token: OnToken | None,
    ) -> Reply:
        left_s = meter.left_s()
        limit_s = self._policy.call_timeout_s if left_s is None else min(left_s, self._policy.call_timeout_s)
        watch = _Stopwatch()
        message: AIMessage | None = None
        outcome = "ok"
        try:
            async with asyncio.timeout(limit_s):
                message = await self._ask(model, messages, meter, self._wire(sent), on_token, watch)
            reply = read_reply(message)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:
            known = classify(error, url=self.base_url or self.name)
            outcome = known.kind
            if known.kind == "timeout" and left_s is not None and left_s < self._policy.call_timeout_s:
                outcome = "deadline"
                raise DeadlineExceeded("the run's time is used up") from error
            raise known from error
        else:
            if reply.refusal:
                outcome = "refused"
                raise ModelError("refused", f"{self.name} refused: {reply.refusal}")
            return reply
        finally:
            meter.calls.append(self._line(meter, messages, message, watch, outcome))

    async def _ask(
        self,
        model: BaseChatModel,
        messages: Sequence[BaseMessage],
        meter: Meter,
        wire: dict[str, Any],
        on_token: OnToken | None,
        watch: "_Stopwatch",
    ) -> AIMessage:
        config: Any = {
            "run_name": meter.role,
            "tags": [meter.role],
            "metadata": {"role": meter.role, "attempt": meter.attempt},
        }
        if on_token is None:
            return _as_message(await model.ainvoke(list(messages), config, **wire))
        if _speaks_openai(model):
            wire["stream_usage"] = self.capabilities.stream_usage
        whole: AIMessageChunk | None = None
        usage = None
        async for chunk in model.astream(list(messages), config, **wire):
            # Some servers repeat a running total in every chunk: the last one counts, not their sum.
            usage = chunk.usage_metadata or usage
            whole = chunk if whole is None else whole + chunk
            if piece := _text(chunk):
                watch.first()
                on_token(piece)
        if whole is None:
            raise ModelError("invalid_reply", f"{self.base_url or self.name} sent an empty stream")
        whole.usage_metadata = usage
        return _as_message(whole)

    def _wire(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Parameters as ChatOpenAI takes them."""
        wire = {key: value for key, value in sent.items() if key == "temperature"}
        if "max_tokens" in sent:
            if self.capabilities.max_tokens == "max_tokens":
                wire["extra_body"] = {"max_tokens": sent["max_tokens"]}
            else:
                wire["max_tokens"] = sent["max_tokens"]
        structure: Structure | None = sent.get("structure")
        if structure is None:
            return wire
        spec = {"name": structure.name, "strict": True}
        match self.capabilities.rung:
            case "json_schema":
                wire["response_format"] = {
                    "type": "json_schema",
                    "json_schema": spec | {"schema": structure.schema},
                }
            case "tool":
                function = spec | {"parameters": structure.schema}
                wire["tools"] = [{"type": "function", "function": function}]
                wire["tool_choice"] = {"type": "function", "function": {"name": structure.name}}
            case "json_object":
                wire["response_format"] = {"type": "json_object"}
        return wire

    def _line(
        self,
        meter: Meter,
        messages: Sequence[BaseMessage],
        message: AIMessage | None,
        watch: "_Stopwatch",
        outcome: str,
    ) -> Call:
        """The ledger line of a request; what the endpoint did not report is estimated, and says so."""
        usage: Any = (message.usage_metadata if message is not None else None) or {}
        answered = message is not None
        prompt = usage.get("input_tokens") or estimate_tokens(*(_text(m) for m in messages))
        completion = usage.get("output_tokens") or (estimate_tokens(_text(message)) if message is not None else 0)
        cached = (usage.get("input_token_details") or {}).get("cache_read") or 0
        cost = self._cost(prompt, completion, cached)
        return Call(
            id=uuid.uuid4().hex,
            role=meter.role,
            attempt=meter.attempt,
            model=self.name,
            returned_model=str(message.response_metadata.get("model_name") or "") if answered and message else "",
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            reasoning_tokens=(usage.get("output_token_details") or {}).get("reasoning") or 0,
            cost_usd=None if cost is None else decimal_text(cost),
            estimated=not (usage.get("input_tokens") and "output_tokens" in usage),
            latency_s=round(watch.elapsed_s(), 4),
            first_token_s=watch.first_s,
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
        await asyncio.sleep(wait_s)


class _Stopwatch:
    def __init__(self) -> None:
        self._started = time.monotonic()
        self.first_s: float | None = None

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def first(self) -> None:
        if self.first_s is None:
            self.first_s = round(self.elapsed_s(), 4)


def _speaks_openai(model: BaseChatModel) -> bool:
    from langchain_openai.chat_models.base import BaseChatOpenAI  # noqa: PLC0415 - slow to import

    return isinstance(model, BaseChatOpenAI)


def _as_message(message: BaseMessage) -> AIMessage:
    if not isinstance(message, AIMessage):
        raise ModelError("invalid_reply", f"expected an AI message, got {type(message).__name__}")
    return message


def _text(message: BaseMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
