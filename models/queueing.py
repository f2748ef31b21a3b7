"""The order in which waiting calls go: fair between runs, and between priorities in the long run."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    """A call in the queue. Times on the queue's clock."""

    id: str
    run_id: str
    priority: int
    tokens: float
    arrived: float
    expires: float
    granted: asyncio.Future[None]


@dataclass(slots=True)
class _Run:
    """A run with calls in the queue."""

    due_since: float
    """When it came to the end of the round."""
    waiting: dict[Waiter, None] = field(default_factory=dict)
    """First come first."""


class FairQueue:
    """Within a priority, runs go in turn and each run's calls as they came; priorities compete by age.

    A run that has been served goes to the end of the round, and a new one starts there: a run with one call waits for
    at most one call of every other run, however many these have queued. Of the priorities' first calls, the one goes
    whose priority plus waited seconds / `ageing_s` is highest: the wait of a call that is passed over has no bound,
    so it cannot be passed over for ever.
    """

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._rounds: dict[int, dict[str, _Run]] = {}
        """By priority, the runs in the order of their turns."""

    def push(self, waiter: Waiter) -> None:
        """Add a call at the end of its run."""
        runs = self._rounds.setdefault(waiter.priority, {})
        run = runs.get(waiter.run_id) or runs.setdefault(waiter.run_id, _Run(waiter.arrived))
        run.waiting[waiter] = None

    def remove(self, waiter: Waiter) -> bool:
        """Take out a call that gave up; False where it is not in the queue."""
        runs = self._rounds.get(waiter.priority, {})
        run = runs.get(waiter.run_id)
        if run is None or waiter not in run.waiting:
            return False
        del run.waiting[waiter]
        if not run.waiting:
            del runs[waiter.run_id]
        if not runs:
            del self._rounds[waiter.priority]
        return True

    def serve(self, waiter: Waiter, now: float) -> None:
        """Take out a call that may go; its run goes to the end of the round."""
        self.remove(waiter)
        runs = self._rounds.get(waiter.priority, {})
        run = runs.pop(waiter.run_id, None)
        if run:
            run.due_since = now
            runs[waiter.run_id] = run

    def head(self, now: float) -> Waiter | None:
        """The call that goes next."""
        firsts = [next(iter(next(iter(runs.values())).waiting)) for runs in self._rounds.values()]
        return max(firsts, key=lambda w: (w.priority + (now - w.arrived) / self._ageing_s, -w.arrived), default=None)

    def due_since(self, waiter: Waiter) -> float:
        """When the run of a queued call last came to the end of the round."""
        return self._rounds[waiter.priority][waiter.run_id].due_since

    def __iter__(self) -> Iterator[Waiter]:
        """All calls, in no order."""
        return (w for runs in self._rounds.values() for run in runs.values() for w in run.waiting)

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def __len__(self) -> int:
        return sum(len(run.waiting) for runs in self._rounds.values() for run in runs.values())
