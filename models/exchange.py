"""One request to a model, and the guards that stand around it."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from secrets import token_hex
from typing import Protocol

from reflexion.models.errors import ModelError
from reflexion.models.kept import KeptReply
from reflexion.models.usage import Call


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One HTTP request from before it is sent until its reply, failure or cancellation is known."""

    id: str = field(default_factory=lambda: token_hex(16))
    """Names the request in state, ledger and log alike."""
    endpoint: str
    """Base URL; empty for a model that has none."""
    model: str
    role: str = ""
    run_id: str = ""
    batch_id: str = ""
    thread_id: str = ""
    attempt: int = 0
    """Of the loop, from 1."""
    retry: int = 0
    """0 for the first try, 1 for its first repetition."""
    priority: int = 0
    """Higher goes first where requests queue."""
    prompt_tokens: int = 0
    """Estimate before the request."""
    reply_tokens: int = 0
    """The longest reply that is reserved for."""
    cost_usd: Callable[[int, int], Decimal | None] = lambda prompt, reply: None
    """Price of so many prompt and reply tokens, in USD; None where unknown."""
    deadline: float | None = None
    """When the caller stops waiting, on `clock`."""
    clock: Callable[[], float] = time.monotonic

    call: Call | None = None
    """The ledger line, once the request has ended, however it ended: reply, failure and cancellation."""
    reply: KeptReply | None = None
    """What the ledger keeps of a reply until a checkpoint holds it; None for nothing."""
    error: ModelError | None = None
    """Why it failed; None for a reply and for a cancellation."""

    @property
    def key(self) -> tuple[str, str]:
        """What limits and breakers are kept by."""
        return self.endpoint, self.model


def unsent_call(exchange: Exchange, outcome: str) -> Call:
    """The ledger line of a request that was never sent, such as one answered from a cache: no tokens, no cost."""
    return Call(
        id=exchange.id,
        role=exchange.role,
        attempt=exchange.attempt,
        model=exchange.model,
        returned_model="",
        prompt_tokens=0,
        completion_tokens=0,
        cached_tokens=0,
        reasoning_tokens=0,
        cost_usd="0",
        estimated=False,
        latency_s=0.0,
        first_token_s=None,
        outcome=outcome,
    )


class Guard(Protocol):
    """Something that stands around each request: may let it wait, refuse it, and looks at how it ended."""

    def around(self, exchange: Exchange) -> AbstractAsyncContextManager[None]:
        """Surround one request.

        Entering may wait, and raises what keeps the request from being sent. When it is left, the
        exchange's `call` is filled in unless the request was never sent; a guard gives back in any case
        what it has taken, on cancellation too.
        """
        ...


@asynccontextmanager
async def guarded(exchange: Exchange, guards: Sequence[Guard]) -> AsyncIterator[None]:
    """Surround a request with guards, the first one outermost."""
    async with AsyncExitStack() as stack:
        for guard in guards:
            await stack.enter_async_context(guard.around(exchange))
        yield
