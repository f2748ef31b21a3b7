"""Any chat model with guards around each of its requests, for callers outside of the loop: tools, other agents."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr

from reflexion.models.answer import Answer
from reflexion.models.breaker import Breaker
from reflexion.models.budget import Budget
from reflexion.models.capabilities import Sent, capabilities_of
from reflexion.models.connect import identity, without_retries
from reflexion.models.dispatch import Dispatch, reserve
from reflexion.models.errors import ModelError
from reflexion.models.exchange import Exchange, Guard, guarded
from reflexion.models.ledger import Ledger
from reflexion.models.limits import RateLimit
from reflexion.models.meter import Meter
from reflexion.models.prices import Prices
from reflexion.models.request import estimate_prompt, speaks_openai
from reflexion.models.request_log import RequestLog
from reflexion.models.retry import RetryPolicy
from reflexion.models.seam import in_order

_LIMITS = ("max_completion_tokens", "max_tokens")


def guard_model(
    model: BaseChatModel,
    *,
    budget: Budget | None = None,
    limits: RateLimit | None = None,
    log: RequestLog | None = None,
    breaker: Breaker | None = None,
    ledger: Ledger | None = None,
    retry: RetryPolicy | None = None,
    prices: Prices | None = None,
    role: str = "",
    run_id: str = "",
    timeout_s: float = 300.0,
) -> BaseChatModel:
    """A copy of a chat model whose requests pass the guards that are given.

    The copy is of a subclass of the model's own class: streaming, `bind_tools`, `with_structured_output` and tracing
    are the model's. It is asynchronous, as guards are. The retries of an OpenAI SDK are switched off, as they would
    pass no guard. A budget shortens replies of OpenAI-compatible models; others are not told, and may overspend.

    Args:
        model: any chat model.
        budget: what its requests may spend.
        limits: how often it may be asked.
        log: gets an event for each request.
        breaker: leaves it alone while its endpoint is in trouble.
        ledger: gets a line for each request.
        retry: when a request is repeated; a stream only until it has begun. None repeats by the default policy.
        prices: what its tokens cost.
        role: for whom it is asked, as log and ledger show it.
        run_id: in which run.
        timeout_s: seconds that one request may take in all.

    Calls raise `ModelError`, `BudgetExhausted` or `DeadlineExceeded`; the first is in place of what the model raised.
    """
    name, base_url, secret = identity(model)
    copy = without_retries(model).model_copy()
    kind = type(copy)
    streams = kind._astream is not BaseChatModel._astream or kind._stream is not BaseChatModel._stream  # noqa: SLF001
    copy.__class__ = _guarded_class(kind, _GuardedStream if streams else _Guarded)
    copy._seam = _ModelSeam(  # type: ignore[attr-defined]  # noqa: SLF001 - of the class above
        Dispatch(model=name, base_url=base_url, prices=prices or Prices(), timeout_s=timeout_s, secret=secret),
        Meter(role=role, attempt=0, run_id=run_id, budget=budget),
        in_order(budget=budget, limits=limits, log=log, breaker=breaker, ledger=ledger),
        retry or RetryPolicy(),
    )
    return copy


@dataclass(frozen=True, slots=True)
class _ModelSeam:
    dispatch: Dispatch
    meter: Meter
    guards: Sequence[Guard]
    retry: RetryPolicy

    @asynccontextmanager
    async def request(
        self, model: BaseChatModel, messages: list[BaseMessage], options: dict[str, Any], retry: int
    ) -> AsyncIterator[tuple[Exchange, Answer, dict[str, Any]]]:
        """Surround one request; yields its options with the limit of the reply that its budget sets."""
        given = [options.get(name) or getattr(model, name, None) for name in _LIMITS]
        wanted = next((limit for limit in given if isinstance(limit, int)), None)
        prompt = estimate_prompt(messages, options.get("tools"), options.get("response_format"))
        exchange = self.dispatch.exchange(self.meter, prompt_tokens=prompt, reply_tokens=wanted, retry=retry)
        limited = reserve(exchange, self.meter.budget)
        async with guarded(exchange, self.guards), self.dispatch.booked(exchange) as answer:
            if limited and exchange.reply_tokens != wanted and speaks_openai(model):
                options = {name: value for name, value in options.items() if name not in _LIMITS}
                options["max_tokens"] = exchange.reply_tokens
            yield exchange, answer, options


_Base: Any = BaseChatModel if TYPE_CHECKING else object


class _Guarded(_Base):  # type: ignore[misc]
    """Goes before a chat model's class."""

    _seam: _ModelSeam
    _astream_chat_model_events = None
    """Not the model's own: it would pass by the guards."""

    def generate(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("a guarded model is asynchronous, as its guards are: use ainvoke, abatch or astream")

    stream = generate

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        seam = self._seam

        async def attempt(retry: int) -> ChatResult:
            async with seam.request(self, messages, options, retry) as (exchange, answer, limited):
                async with seam.dispatch.in_time(exchange, answer):
                    result: ChatResult = await super(_Guarded, self)._agenerate(messages, *args, **limited)
                generation = result.generations[0]
                answer.add(generation.message, {**(result.llm_output or {}), **(generation.generation_info or {})})
                return result

        return await seam.retry.run(attempt)


class _GuardedStream(_Guarded):
    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        seam, retry, begun = self._seam, 0, False
        known = capabilities_of(seam.dispatch.base_url, seam.dispatch.model)
        openai = speaks_openai(self)
        for_usage = openai and "stream_usage" not in options and self.stream_usage is not False
        while True:
            sent = Sent(stream_usage=for_usage and known.stream_usage)
            if for_usage:
                options["stream_usage"] = sent.stream_usage
            try:
                async with (
                    seam.request(self, messages, options, retry) as (exchange, answer, limited),
                    aclosing(super()._astream(messages, *args, **limited)) as parts,
                ):
                    while True:
                        async with seam.dispatch.in_time(exchange, answer):
                            part = await anext(parts, None)
                        if part is None:
                            break
                        answer.add(part.message, part.generation_info)
                        begun = True
                        yield part
                    if openai:
                        answer.check_ended(exchange.endpoint)
            except ModelError as error:
                if begun:
                    raise
                if known.learn(error, sent):
                    continue
                wait_s = seam.retry.wait_s(error, retry)
            else:
                return
            await seam.retry.sleep(wait_s)
            retry += 1


@lru_cache(maxsize=64)
def _guarded_class(kind: type[BaseChatModel], guarding: type) -> type[BaseChatModel]:
    namespace = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "_seam": PrivateAttr()}
    return type(kind.__name__, (guarding, kind), namespace)
