"""One chat model at one endpoint, called the careful way: guarded, repeated in one place, every request booked."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from reflexion.models.answer import Answer, spoken
from reflexion.models.cache import cache_key, cached_call
from reflexion.models.capabilities import Capabilities, Sent, capabilities_of
from reflexion.models.ends import DeadlineExceeded
from reflexion.models.errors import ModelError, classify, scrub
from reflexion.models.exchange import Exchange, guarded
from reflexion.models.meter import Meter
from reflexion.models.prices import Prices
from reflexion.models.replies import Reply, read_reply, text_of
from reflexion.models.request import OnToken, Request, Structure, speaks_openai, to_wire
from reflexion.models.retry import RetryPolicy
from reflexion.models.seam import Seam
from reflexion.models.usage import Call, decimal_text, estimate_tokens

EXPECTED_REPLY = 1_024
"""Tokens that a rate limit sets aside for a reply that has no limit; corrected once its usage is known."""


class ChatClient:
    """Calls one model. Wraps any `BaseChatModel`; the protocol's finer points need an OpenAI-compatible one."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[BaseChatModel]],
        *,
        name: str,
        base_url: str = "",
        prices: Prices | None = None,
        retry: RetryPolicy | None = None,
        seam: Seam | None = None,
        call_timeout_s: float = 300.0,
        first_token_timeout_s: float | None = None,
        max_tokens: int | None = None,
        embedded: bool = False,
        secret: str = "",
    ) -> None:
        """Remember how to reach the model.

        Args:
            connect: makes the chat model; called again when the embedded model's server has gone.
            name: the model's name, as the ledger shows it.
            base_url: its endpoint; empty where it has none.
            prices: what its tokens cost.
            retry: when a request is repeated.
            seam: the guards that the whole program shares.
            call_timeout_s: seconds that one request may take in all.
            first_token_timeout_s: seconds that a stream may take to begin; None for no limit of its own.
            max_tokens: its longest reply.
            embedded: whether it is the embedded model, whose own judgement is worth little.
            secret: what no message may repeat.
        """
        self.name = name
        self.base_url = base_url
        self.embedded = embedded
        self._connect = connect
        self._connecting = asyncio.Lock()
        self._model: BaseChatModel | None = None
        self._prices = prices or Prices()
        self._retry = retry or RetryPolicy()
        self._seam = seam or Seam()
        self._call_timeout_s = call_timeout_s
        self._first_token_timeout_s = first_token_timeout_s
        self._max_tokens = max_tokens
        self._secret = secret

    @property
    def capabilities(self) -> Capabilities:
        """What this endpoint has been found to support."""
        return capabilities_of(self.base_url, self.name)

    def has_price(self) -> bool:
        """Whether calls have a known price."""
        return self._prices.knows(self.name, self.base_url)

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
        request = Request(messages, temperature, max_tokens or self._max_tokens, structure, on_token)
        cache = self._seam.cache
        if cache is None:
            return await self._asked(request, meter)
        key = await self._cache_key(request)
        reply, cached = await cache.answer(key, partial(self._asked, request, meter), left_s=meter.left_s())
        if cached:
            await self._book_cached(request, meter)
            if on_token:
                on_token(reply.text)
        return reply

    async def _asked(self, request: Request, meter: Meter) -> Reply:
        whole = replace(request, on_token=None)
        cannot_stream = False

        async def attempt(retry: int) -> Reply:
            nonlocal cannot_stream
            try:
                return await self._try(whole if cannot_stream else request, meter, retry)
            except ModelError as error:
                if error.kind == "connection" and self.embedded:
                    self._model = None  # its server may have died; connecting starts another
                # Some servers answer with a whole reply, or an error, where a stream was asked for.
                cannot_stream = cannot_stream or error.kind == "invalid_reply"
                raise

        reply = await self._retry.run(attempt, deadline=meter.deadline, clock=meter.clock)
        if cannot_stream and request.on_token:
            request.on_token(reply.text)
        return reply

    async def _try(self, request: Request, meter: Meter, retry: int) -> Reply:
        """One try. What the endpoint refuses of it is given up at once, and the rest asked again."""
        while True:
            meter.left_s()
            model = await self._connected()
            exchange = self._exchange(request, meter, retry)
            limited = meter.budget.reply_limit(exchange) if meter.budget else request.max_tokens
            exchange.reply_tokens = limited or EXPECTED_REPLY
            guards = ([meter.budget] if meter.budget else []) + self._seam.guards + [meter.ledger]
            sent = Sent()
            try:
                async with guarded(exchange, guards):
                    # A budget may have shortened the reply while the request waited.
                    limit = min(limited, exchange.reply_tokens) if limited else None
                    if speaks_openai(model):
                        sent = self._sendable(replace(request, max_tokens=limit))
                    return await self._send(model, request, sent, meter, exchange)
            except ModelError as error:
                if not self.capabilities.learn(error, sent):
                    raise
            finally:
                if exchange.call is not None:
                    meter.calls.append(exchange.call)

    async def _connected(self) -> BaseChatModel:
        model = self._model
        if model is None:
            async with self._connecting:
                model = self._model = await self._connect() if self._model is None else self._model
        return model

    def _exchange(self, request: Request, meter: Meter, retry: int) -> Exchange:
        return Exchange(
            endpoint=self.base_url,
            model=self.name,
            role=meter.role,
            run_id=meter.run_id,
            thread_id=meter.thread_id,
            batch_id=meter.batch_id,
            attempt=meter.attempt,
            retry=retry,
            priority=meter.priority,
            prompt_tokens=request.prompt_tokens,
            reply_tokens=request.max_tokens or 0,
            cost_usd=lambda prompt, reply: self._cost(prompt, reply, 0, 0),
            deadline=meter.deadline,
            clock=meter.clock,
        )

    def _sendable(self, request: Request) -> Sent:
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

    async def _send(
        self, model: BaseChatModel, request: Request, sent: Sent, meter: Meter, exchange: Exchange
    ) -> Reply:
        left_s = None if exchange.deadline is None else max(0.0, exchange.deadline - exchange.clock())
        limit_s = self._call_timeout_s if left_s is None else min(left_s, self._call_timeout_s)
        answer = Answer()
        outcome = "ok"
        try:
            async with asyncio.timeout(limit_s) as scope:
                await self._receive(model, request, sent, meter, answer)
            return self._read(answer)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:
            if scope.expired() and left_s is not None and left_s < self._call_timeout_s:
                outcome = "deadline"
                raise DeadlineExceeded("the run's time is used up") from error
            known = classify(error, url=self.base_url or self.name, secret=self._secret)
            outcome, exchange.error = known.kind, known
            if known is error:
                raise
            raise known from error
        finally:
            # An error status came instead of a reply, and nothing is charged for that.
            free = exchange.error is not None and exchange.error.status is not None
            exchange.call = self._line(exchange, answer, outcome, free=free)

    async def _receive(self, model: BaseChatModel, request: Request, sent: Sent, meter: Meter, answer: Answer) -> None:
        config: Any = {
            "run_name": meter.role,
            "tags": [meter.role],
            "metadata": {"role": meter.role, "attempt": meter.attempt},
        }
        openai = speaks_openai(model)
        wire = to_wire(model, request, sent) if openai else {}
        if request.on_token is None:
            if openai:
                # A listener such as LangGraph's `messages` stream would otherwise turn this into a stream.
                wire["stream"] = False
            answer.add(await model.ainvoke(list(request.messages), config, **wire))
            return
        if openai:
            wire["stream_usage"] = sent.stream_usage
        async with asyncio.timeout(self._first_token_timeout_s) as until_it_begins:
            async for chunk in model.astream(list(request.messages), config, **wire):
                answer.add(chunk)
                if piece := text_of(chunk.content):
                    until_it_begins.reschedule(None)
                    request.on_token(piece)
        if openai and not answer.message.response_metadata.get("finish_reason"):
            raise ModelError("connection", f"the stream of {self.base_url or self.name} ended before its end")

    def _read(self, answer: Answer) -> Reply:
        reply = read_reply(answer.message)
        if reply.refusal:
            raise ModelError("refused", f"{self.name} refused: {scrub(reply.refusal, self._secret)}")
        return reply

    def _line(self, exchange: Exchange, answer: Answer, outcome: str, *, free: bool) -> Call:
        """The ledger line of a request; what the endpoint did not report is estimated, and says so."""
        message = answer.message if answer.parts else None
        usage: Any = (message.usage_metadata if message is not None else None) or {}
        written = 0 if message is None else estimate_tokens(*spoken(message))
        prompt = 0 if free else usage.get("input_tokens") or exchange.prompt_tokens
        completion = usage.get("output_tokens") or written
        cached = min(prompt, (usage.get("input_token_details") or {}).get("cache_read") or 0)
        reasoning = min(completion, (usage.get("output_token_details") or {}).get("reasoning") or 0)
        cost = self._cost(prompt, completion, cached, reasoning)
        reported = usage.get("input_tokens") and (usage.get("output_tokens") or not written)
        return Call(
            id=uuid.uuid4().hex,
            role=exchange.role,
            attempt=exchange.attempt,
            model=self.name,
            returned_model="" if message is None else str(message.response_metadata.get("model_name") or ""),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            reasoning_tokens=reasoning,
            cost_usd=None if cost is None else decimal_text(cost),
            estimated=not (reported or free),
            latency_s=round(answer.elapsed_s(), 4),
            first_token_s=answer.first_token_s,
            outcome=outcome,
        )

    def _cost(
        self, prompt_tokens: int, completion_tokens: int, cached_tokens: int, reasoning_tokens: int
    ) -> Decimal | None:
        return self._prices.cost_usd(
            self.name,
            self.base_url,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            reasoning_tokens=reasoning_tokens,
        )

    async def _cache_key(self, request: Request) -> str | None:
        model = await self._connected()
        if not speaks_openai(model):
            return None
        return cache_key(self.base_url, self.name, request.messages, to_wire(model, request, self._sendable(request)))

    async def _book_cached(self, request: Request, meter: Meter) -> None:
        exchange = self._exchange(request, meter, retry=0)
        exchange.call = cached_call(exchange)
        await meter.ledger.add(exchange)
        self._seam.log.write(exchange, exchange.call)
        meter.calls.append(exchange.call)
