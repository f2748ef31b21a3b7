"""One chat model at one endpoint, called the careful way: guarded, repeated in one place, every request booked."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from reflexion.models.answer import Answer
from reflexion.models.cache import cache_key
from reflexion.models.capabilities import Capabilities, Sent, capabilities_of
from reflexion.models.dispatch import Dispatch, reserve
from reflexion.models.errors import ModelError, scrub
from reflexion.models.exchange import Exchange, guarded, unsent_call
from reflexion.models.kept import kept_reply
from reflexion.models.meter import Meter
from reflexion.models.prices import Prices
from reflexion.models.replies import Reply, read_reply, text_of
from reflexion.models.request import OnToken, Request, Structure, speaks_openai, to_wire
from reflexion.models.retry import RetryPolicy
from reflexion.models.seam import Seam
from reflexion.models.tracing import traced_call
from reflexion.models.usage import CACHED


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
        self._dispatch = Dispatch(
            model=name, base_url=base_url, prices=prices or Prices(), timeout_s=call_timeout_s, secret=secret
        )
        self._retry = retry or RetryPolicy()
        self._seam = seam or Seam()
        self._first_token_timeout_s = first_token_timeout_s
        self._max_tokens = max_tokens

    @property
    def capabilities(self) -> Capabilities:
        """What this endpoint has been found to support."""
        return capabilities_of(self.base_url, self.name)

    def has_price(self) -> bool:
        """Whether calls have a known price."""
        return self._dispatch.cost_usd(1, 1) is not None

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
            on_token: called with each piece of text as it arrives; the reply is then streamed. None for the meter's.

        Raises:
            ModelError: no reply could be had.
            BudgetExhausted: the run cannot pay for the call.
            DeadlineExceeded: the run has no time left for it.
        """
        on_token = on_token or meter.on_token
        if self.embedded and on_token is None:
            on_token = _unheard  # its server works on to the end of a request that nobody waits for, unless it streams
        request = Request(messages, temperature, max_tokens or self._max_tokens, structure, on_token)
        paid = meter.replies and meter.replies.take(_key(request, meter))
        if paid:
            if on_token:
                on_token(paid.text)
            return paid
        cache = self._seam.cache
        if cache is None:
            return await self._asked(request, meter)
        key = await self._cache_key(request)
        reply, cached = await cache.answer(key, partial(self._asked, request, meter), left_s=meter.left_s())
        if cached:
            await self._book_unsent(self._exchange(request, meter), CACHED, meter)
            if on_token:
                on_token(reply.text)
        return reply

    async def _asked(self, request: Request, meter: Meter) -> Reply:
        cannot_stream = False

        async def attempt(retry: int) -> Reply:
            nonlocal cannot_stream
            try:
                return await self._try(replace(request, on_token=None) if cannot_stream else request, meter, retry)
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
        again = False
        while True:
            meter.left_s()
            model = self._model or await self._connected()
            exchange = self._exchange(request, meter, retry)
            limited = reserve(exchange, meter.budget)
            sent = Sent()
            try:
                async with guarded(exchange, self._seam.guards(meter.budget, meter.ledger)):
                    if speaks_openai(model):
                        sent = self._sendable(request, exchange.reply_tokens if limited else None)
                    async with self._dispatch.booked(exchange) as answer:
                        async with self._dispatch.in_time(exchange, answer):
                            with traced_call(self._dispatch, exchange, again=again) as config:
                                await self._receive(model, request, sent, config, answer)
                        reply = self._read(answer)
                        if meter.replies:
                            exchange.reply = kept_reply(_key(request, meter), reply)
                        return reply
            except ModelError as error:
                if error.kind == "circuit_open":
                    await self._book_unsent(exchange, error.kind, meter)
                if not self.capabilities.learn(error, sent):
                    raise
                again = True
            finally:
                if exchange.call is not None:
                    meter.calls.append(exchange.call)

    async def _connected(self) -> BaseChatModel:
        model = self._model
        if model is None:
            async with self._connecting:
                model = self._model = await self._connect() if self._model is None else self._model
        return model

    def _exchange(self, request: Request, meter: Meter, retry: int = 0) -> Exchange:
        return self._dispatch.exchange(
            meter, prompt_tokens=request.prompt_tokens, reply_tokens=request.max_tokens, retry=retry
        )

    def _sendable(self, request: Request, limit: int | None) -> Sent:
        """The optional parameters of a request, as far as the endpoint takes them."""
        known = self.capabilities
        if known.max_tokens == "none":
            limit = None
        elif limit is not None and known.longest_reply is not None:
            limit = min(limit, known.longest_reply)
        return Sent(
            rung=known.rung if request.structure else "plain",
            stream_usage=known.stream_usage and request.on_token is not None,
            temperature=known.temperature and request.temperature is not None,
            max_tokens=limit,
            limit_name=known.max_tokens,
        )

    async def _receive(
        self, model: BaseChatModel, request: Request, sent: Sent, config: RunnableConfig, answer: Answer
    ) -> None:
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
                if answer.first_token_s is not None:
                    until_it_begins.reschedule(None)
                if piece := text_of(chunk.content):
                    request.on_token(piece)
        if openai:
            answer.check_ended(self.base_url or self.name)

    def _read(self, answer: Answer) -> Reply:
        reply = read_reply(answer.message)
        if reply.refusal:
            raise ModelError("refused", f"{self.name} refused: {scrub(reply.refusal, self._dispatch.secret)}")
        return reply

    async def _cache_key(self, request: Request) -> str | None:
        model = await self._connected()
        if not speaks_openai(model):
            return None
        wire = to_wire(model, request, self._sendable(request, request.max_tokens))
        return cache_key(self.base_url, self.name, request.messages, wire)

    async def _book_unsent(self, exchange: Exchange, outcome: str, meter: Meter) -> None:
        call = unsent_call(exchange, outcome)
        await meter.ledger.add(replace(exchange, call=call))
        self._seam.log.write(exchange, call)
        meter.calls.append(call)


def _key(request: Request, meter: Meter) -> str:
    assert meter.replies
    return meter.replies.key(meter.role, request.messages, request.structure and request.structure.schema)


def _unheard(_: str) -> None:
    """Streams to nobody."""
