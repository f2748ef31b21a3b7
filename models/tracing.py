"""A model call in a trace: its name, what is known of it, its tokens and its cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.callbacks.base import BaseCallbackManager
from langchain_core.messages import AIMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import RunnableConfig, var_child_runnable_config
from langchain_core.tracers.langchain import LangChainTracer
from langsmith.run_trees import RunTree
from langsmith.utils import tracing_is_enabled

from reflexion.models.answer import spoken
from reflexion.models.dispatch import Dispatch
from reflexion.models.errors import classify
from reflexion.models.exchange import Exchange
from reflexion.models.usage import estimate_tokens


def tracers_here() -> list[LangChainTracer]:
    """What traces the step that is running, where anything does."""
    callbacks = _callbacks_here()
    handlers = callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks or []
    return [handler for handler in handlers if isinstance(handler, LangChainTracer)]


def add_metadata(run: RunTree, metadata: dict[str, Any]) -> None:
    """Say more of a traced run that has not ended; values of None are left out.

    LangChain gives one and the same dictionary to several runs, so it is not changed in place.
    """
    known = {name: value for name, value in metadata.items() if value is not None}
    run.extra["metadata"] = {**(run.extra.get("metadata") or {}), **known}


@contextmanager
def traced_call(dispatch: Dispatch, exchange: Exchange, *, again: bool) -> Iterator[RunnableConfig]:
    """Surround one request of LangChain's, which traces it.

    Args:
        dispatch: the model and its price.
        exchange: the request.
        again: whether it is asked a second time because the endpoint refused a part of it.

    Yields:
        The config for the request.
    """
    metadata = {
        "role": exchange.role,
        "attempt": exchange.attempt,
        "retry": exchange.retry,
        "run_id": exchange.run_id,
        "thread_id": exchange.thread_id,
        "call_id": exchange.id,
        "requested_model": exchange.model,
        "endpoint": exchange.endpoint,
    }
    config = RunnableConfig(run_name=_name(exchange, again), tags=_tags(exchange, again), metadata=metadata)
    tracers = tracers_here()
    if not tracers and not tracing_is_enabled():
        yield config
        return
    call = _TracedCall(dispatch, exchange, tracers)
    config["callbacks"] = _before_others(call)
    try:
        yield config
    except BaseException as error:
        call.end(error)
        raise


def _name(exchange: Exchange, again: bool) -> str:
    name = f"{exchange.role} attempt {exchange.attempt}" if exchange.attempt else exchange.role
    return name + (f", retry {exchange.retry}" if exchange.retry else "") + (", asked for less" if again else "")


def _tags(exchange: Exchange, again: bool) -> list[str]:
    return [exchange.role, *(["retry"] if exchange.retry else []), *(["asked for less"] if again else [])]


def _callbacks_here() -> Any:
    return (var_child_runnable_config.get() or {}).get("callbacks")


def _before_others(handler: BaseCallbackHandler) -> Any:
    """The step's callbacks with one in front: a tracer sends a run as soon as it hears of its end."""
    callbacks = _callbacks_here()
    if not isinstance(callbacks, BaseCallbackManager):
        return [handler, *(callbacks or [])]
    manager = callbacks.copy()
    manager.handlers = [handler, *manager.handlers]
    manager.inheritable_handlers = [handler, *manager.inheritable_handlers]
    return manager


class _TracedCall(BaseCallbackHandler):
    """Completes what tracers know of one call, before they send it."""

    run_inline = True

    def __init__(self, dispatch: Dispatch, exchange: Exchange, tracers: list[LangChainTracer]) -> None:
        self._dispatch = dispatch
        self._exchange = exchange
        self._tracers = tracers
        self._run_id: UUID | None = None

    def on_chat_model_start(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._run_id = run_id

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        message = getattr(response.generations[0][0], "message", None)
        if not isinstance(message, AIMessage):
            return
        returned = str(message.response_metadata.get("model_name") or "")
        reported = message.usage_metadata
        usage: dict[str, Any] = {**(reported or self._estimate(message))}
        cost, source = self._cost(usage, returned)
        metadata: dict[str, Any] = {"returned_model": returned or None, "price_source": source, "outcome": "ok"}
        if reported:
            # Tracers look here last. LangChain's type has no cost, LangSmith's has.
            message.usage_metadata = usage | cost  # type: ignore[assignment]
        else:
            metadata |= {"usage_metadata": usage | cost, "usage_estimated": True}
        self._add(metadata)

    def on_llm_error(self, error: BaseException, **_: Any) -> None:
        known = error if not isinstance(error, Exception) else classify(error, url="", secret="")
        self._add({"outcome": getattr(known, "kind", "cancelled")})

    def end(self, error: BaseException) -> None:
        """End what LangChain leaves open when it is cancelled while it waits for a whole reply."""
        for tracer in self._tracers:
            if self._run_id is not None and str(self._run_id) in tracer.run_map:
                self.on_llm_error(error)
                tracer.on_llm_error(error, run_id=self._run_id)

    def _add(self, metadata: dict[str, Any]) -> None:
        for tracer in self._tracers:
            if run := tracer.run_map.get(str(self._run_id)):
                add_metadata(run, metadata)

    def _estimate(self, message: AIMessage) -> dict[str, Any]:
        prompt, completion = self._exchange.prompt_tokens, estimate_tokens(*spoken(message))
        return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}

    def _cost(self, usage: dict[str, Any], returned: str) -> tuple[dict[str, float], str]:
        """LangSmith's fields for what the tokens cost, and where the price is from. No field for an unknown price, and
        none for 0: it would stand among sums of money as if somebody had paid it."""
        given, taken = usage["input_tokens"], usage["output_tokens"]
        cached = min(given, (usage.get("input_token_details") or {}).get("cache_read") or 0)
        reasoning = min(taken, (usage.get("output_token_details") or {}).get("reasoning") or 0)
        prices, base_url = self._dispatch.prices, self._dispatch.base_url
        for model in filter(None, (self._dispatch.model, returned)):
            price = prices.at(model, base_url)
            total = price.cost_usd(
                prompt_tokens=given, completion_tokens=taken, cached_tokens=cached, reasoning_tokens=reasoning
            )
            if total is not None:
                input_cost = price.cost_usd(prompt_tokens=given, completion_tokens=0, cached_tokens=cached) or Decimal(
                    0
                )
                costs = {"input_cost": input_cost, "output_cost": total - input_cost, "total_cost": total}
                if not total:
                    return {}, "free"
                return {name: float(cost) for name, cost in costs.items()}, prices.source(model)
        return {}, "unknown"
