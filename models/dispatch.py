"""What is the same about every request to a model, whoever asks: whose it is, how long it may take, what it cost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from reflexion.models.answer import Answer, spoken
from reflexion.models.budget import Budget
from reflexion.models.ends import DeadlineExceeded
from reflexion.models.errors import classify
from reflexion.models.exchange import Exchange
from reflexion.models.meter import Meter
from reflexion.models.prices import Priced, Prices
from reflexion.models.usage import Call, decimal_text, estimate_tokens

EXPECTED_REPLY = 1_024
"""Tokens that a rate limit sets aside for a reply that has no limit; corrected once its usage is known."""
LONGEST_SHARED_REPLY = 8_192
"""Tokens of the longest reply that a call may make from a budget that it shares: without a limit it would set all that
is left aside, and calls beside it would find nothing."""


def reserve(exchange: Exchange, budget: Budget | None) -> bool:
    """Set what guards are to reserve for the reply, directly before they are entered.

    Returns:
        Whether the reply is limited to it. What was reserved may have become less once the guards are entered.

    Raises:
        BudgetExhausted: the budget can't pay for even a short reply.
        DeadlineExceeded: no time is left.
    """
    if budget and budget.parent and not exchange.reply_tokens:
        exchange.reply_tokens = LONGEST_SHARED_REPLY
    limit = budget.reply_limit(exchange) if budget else exchange.reply_tokens or None
    exchange.reply_tokens = limit or EXPECTED_REPLY
    return limit is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One model at one endpoint, as requests to it are made and booked."""

    model: str
    base_url: str = ""
    """Empty for a model that has none."""
    prices: Prices = field(default_factory=Prices)
    timeout_s: float = 300.0
    """Seconds that one request may take in all."""
    secret: str = ""
    """What no message may repeat."""
    _price: Priced = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_price", self.prices.at(self.model, self.base_url))

    def exchange(self, meter: Meter, *, prompt_tokens: int, reply_tokens: int | None, retry: int = 0) -> Exchange:
        """A request that has not been sent yet.

        Args:
            meter: on whose behalf it is made.
            prompt_tokens: an estimate.
            reply_tokens: the longest reply that is wanted; None for any.
            retry: 0 for the first try, 1 for its first repetition.
        """
        return Exchange(
            endpoint=self.base_url,
            model=self.model,
            role=meter.role,
            run_id=meter.run_id,
            thread_id=meter.thread_id,
            batch_id=meter.batch_id,
            attempt=meter.attempt,
            retry=retry,
            priority=meter.priority,
            prompt_tokens=prompt_tokens,
            reply_tokens=reply_tokens or 0,
            cost_usd=self.cost_usd,
            deadline=meter.deadline,
            clock=meter.clock,
        )

    def cost_usd(self, prompt: int, completion: int, cached: int = 0, reasoning: int = 0) -> Decimal | None:
        """What so many tokens cost, in USD; None where the price is unknown."""
        return self._price.cost_usd(
            prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, reasoning_tokens=reasoning
        )

    @asynccontextmanager
    async def booked(self, exchange: Exchange) -> AsyncIterator[Answer]:
        """Surround the sending of one request, inside its guards: they find its ledger line however it ends.

        Yields:
            What takes the parts of the answer as they come.

        Raises:
            ModelError: what went wrong, in place of what was raised.
        """
        answer = Answer()
        outcome = "ok"
        try:
            yield answer
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        except DeadlineExceeded:
            outcome = "deadline"
            raise
        except Exception as error:
            known = classify(error, url=self.base_url or self.model, secret=self.secret)
            outcome, exchange.error = known.kind, known
            if known is error:
                raise
            raise known from error
        finally:
            # An error status came instead of a reply, and nothing is charged for that.
            free = exchange.error is not None and exchange.error.status is not None
            exchange.call = self._line(exchange, answer, outcome, free=free)

    @asynccontextmanager
    async def in_time(self, exchange: Exchange, answer: Answer) -> AsyncIterator[None]:
        """Bound what waits for the endpoint: by the time that the call has left, and by the exchange's deadline.

        Raises:
            DeadlineExceeded: the deadline came first.
            TimeoutError: the call took too long.
        """
        limit_s = self.timeout_s - answer.elapsed_s()
        left_s = None if exchange.deadline is None else exchange.deadline - exchange.clock()
        hurried = left_s is not None and left_s < limit_s
        try:
            async with asyncio.timeout(left_s if hurried else limit_s) as scope:
                yield
        except TimeoutError as error:
            if hurried and scope.expired():
                raise DeadlineExceeded("the run's time is used up") from error
            raise

    def _line(self, exchange: Exchange, answer: Answer, outcome: str, *, free: bool) -> Call:
        """The ledger line of a request; what the endpoint did not report is estimated, and says so."""
        message = answer.message if answer.parts else None
        usage: Any = (message.usage_metadata if message is not None else None) or {}
        reported = usage.get("input_tokens") and usage.get("output_tokens")
        written = 0 if message is None or reported else estimate_tokens(*spoken(message))
        prompt = 0 if free else usage.get("input_tokens") or exchange.prompt_tokens
        completion = usage.get("output_tokens") or written
        cached = min(prompt, (usage.get("input_token_details") or {}).get("cache_read") or 0)
        reasoning = min(completion, (usage.get("output_token_details") or {}).get("reasoning") or 0)
        cost = self.cost_usd(prompt, completion, cached, reasoning)
        call = Call(
            id=exchange.id,
            role=exchange.role,
            attempt=exchange.attempt,
            model=self.model,
            returned_model="" if message is None else str(message.response_metadata.get("model_name") or ""),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            reasoning_tokens=reasoning,
            cost_usd=None if cost is None else decimal_text(cost),
            estimated=not (reported or free or (usage.get("input_tokens") and not written)),
            latency_s=round(answer.elapsed_s(), 4),
            first_token_s=answer.first_token_s,
            outcome=outcome,
        )
        if cost is None and (known := self.prices.cost_of(call, self.base_url)) is not None:
            call["cost_usd"] = decimal_text(known)
        return call
