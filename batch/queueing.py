"""Which task is handed out next: by priority, and yet none waits for ever."""

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

AGEING = 100
"""A task of one priority more overtakes those that stand fewer places before it."""
MOST_WAITING = 10_000
"""How far is read ahead, in tasks; and in bytes."""
MOST_BYTES = 32 * 2**20


class Queue(Generic[T]):
    """What has been read and not been handed out, a bounded window onto the stream.

    The task with the highest `priority * AGEING - place in the input` goes next. Age counts in tasks, not in seconds:
    the order depends on nothing but the input, and a task is overtaken by fewer than `AGEING` times the difference in
    priority.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, T]] = []
        self._arrivals = count()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def full(self) -> bool:
        """Whether enough has been read for now."""
        return len(self._heap) >= MOST_WAITING or self._bytes >= MOST_BYTES

    def put(self, item: T, *, place: int, priority: int = 0, size: int = 0) -> None:
        """Add what stands at a place of the input."""
        heapq.heappush(self._heap, (place - priority * AGEING, next(self._arrivals), size, item))
        self._bytes += size

    def take(self) -> T:
        """The next one; there must be one."""
        _, _, size, item = heapq.heappop(self._heap)
        self._bytes -= size
        return item

    def drain(self) -> Iterator[T]:
        """All that is left, in order."""
        while self._heap:
            yield self.take()
