"""When a request is repeated, and how long to wait before."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from reflexion.models.ends import DeadlineExceeded
from reflexion.models.errors import ModelError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Repeats what may succeed later, and nothing else. Times in seconds."""

    max_retries: int = 3
    first_wait_s: float = 0.5
    """Longest wait before the first repetition; each further one doubles it."""
    max_wait_s: float = 60.0
    """Longest backoff. A server that asks for more ends the call at once."""
    uniform: Callable[[float, float], float] = field(default=random.uniform, repr=False, compare=False)
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        if min(self.max_retries, self.first_wait_s, self.max_wait_s) < 0:
            raise ValueError("a retry policy takes no negative numbers")

    async def run(
        self,
        attempt: Callable[[int], Awaitable[T]],
        *,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> T:
        """Try until it succeeds or there is no hope. Nothing that an attempt holds is held while waiting.

        Args:
            attempt: makes one try; gets 0 for the first, 1 for its first repetition.
            deadline: when the caller stops waiting, on `clock`; None for never.
            clock: in seconds.

        Raises:
            ModelError: of the last try.
            DeadlineExceeded: there is no time left to wait for another try.
        """
        retry = 0
        while True:
            try:
                return await attempt(retry)
            except ModelError as error:
                wait_s = self.wait_s(error, retry)
                if deadline is not None and clock() + wait_s >= deadline:
                    raise DeadlineExceeded(f"no time left to wait {wait_s:.1f} s and try again: {error}") from error
            await self.sleep(wait_s)
            retry += 1

    def wait_s(self, error: ModelError, retry: int) -> float:
        """Seconds to wait after try number `retry`, from 0: full jitter, and never less than the server asked for.

        Exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", 2015).

        Raises:
            ModelError: the error, where no repetition is due, or the server asks for more than the longest wait.
        """
        if not error.retryable or retry >= self.max_retries:
            raise error
        asked_s = error.wait_s or 0.0
        if asked_s > self.max_wait_s:
            raise ModelError(
                error.kind,
                f"{error} (asked to wait {asked_s:.10g} s, more than the {self.max_wait_s:.10g} s allowed)",
                status=error.status,
                wait_s=error.wait_s,
                parameter=error.parameter,
                said=error.said,
            ) from error
        backoff_s = self.uniform(0, min(self.max_wait_s, self.first_wait_s * 2.0 ** min(retry, 60)))
        return max(backoff_s, asked_s + min(backoff_s, self.first_wait_s)) if asked_s else backoff_s
