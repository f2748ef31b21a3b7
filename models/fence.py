"""A run's claim to its thread: of several workers that believe they have it, the one that took it last is right."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field


class Fenced(Exception):  # noqa: N818 - an end, not an error
    """Another worker has taken the thread over; what this run would still write is refused."""

    def __init__(self, thread_id: str, epoch: int) -> None:
        super().__init__(
            f"thread {thread_id!r} was taken over by another worker: this run (epoch {epoch}) ends without a result, "
            "and the other goes on from its last checkpoint"
        )
        self.thread_id = thread_id
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class Fence:
    """One run's claim."""

    thread_id: str
    epoch: int
    """Grows each time that the thread is taken."""
    check: Callable[[], Awaitable[None]] = field(repr=False, compare=False)
    """Asks the database whether the claim still holds; raises `Fenced` where it does not."""


current: ContextVar[Fence | None] = ContextVar("fence", default=None)
"""The claim of the run that is at work; None for one that needs none. What writes for it makes the database check it,
in the transaction of the write."""
