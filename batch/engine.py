"""What runs the tasks of a batch: one small interface, so that the batch need not know whether it is one process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from reflexion.models import CircuitState
from reflexion.models.limits import LimitState
from reflexion.nodes import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One task as an engine gets it: plain JSON in every field."""

    batch_id: str
    task_id: str
    thread_id: str
    """The same whenever the batch goes on with this task, and no other task's: a thread that has ended holds the
    result, which is not paid for again."""
    task: str
    tests: str = ""
    expect: Any = None
    criteria: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Settings` for this task: its own, and what the batch saves by."""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for a batch as a whole."""

    batch_id: str
    budget_usd: Decimal | None = None
    budget_tokens: int | None = None
    resumed: bool = False
    """Whether another process may have worked on it before: threads may hold results, and the ledger costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a batch has used."""

    requests: int = 0
    tokens: int = 0
    cost_usd: Decimal | None = Decimal(0)
    """USD; None once a price was unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What stands between the engine and its endpoints; empty where that is not known."""

    limits: Sequence[LimitState] = ()
    circuits: Sequence[CircuitState] = ()


class Engine(Protocol):
    """Runs tasks. One batch at a time."""

    @property
    def settings(self) -> Settings:
        """Those of its runs; a task's own are changes to them."""
        ...

    async def open(self, terms: Terms) -> None:
        """Before the first job: check what can be, and take over what the batch has spent so far.

        Raises:
            ConfigurationError: no task could be run at all.
        """
        ...

    async def run(self, job: Job) -> Mapping[str, Any]:
        """Run a job, or go on with it, to its end.

        Cancelled, it breaks the run off so that it can be gone on with, and returns when nothing of it is at work. A
        thread that has ended with an attempt gives its result, and is not run again. The batch's budget `suspends` what
        it refuses.

        Returns:
            `Result.as_json()`.

        Raises:
            Unfinished: the batch's budget has refused it a call; it can be gone on with.
            NothingPossible: no job at all can be run any more.
            Exception: anything else is an error of this job alone.
        """
        ...

    async def forget(self, threads: Sequence[str]) -> None:
        """Delete what is kept of these threads: their results are safe."""
        ...

    def spent(self) -> Spent:
        """What the batch has used since it was begun, as far as is known here."""
        ...

    def left(self) -> float:
        """The share of the batch's budget that is left, 0..1: of dollars or tokens, whichever is shorter."""
        ...

    async def health(self) -> Health:
        """Limits and breakers as they stand."""
        ...

    async def close(self) -> None:
        """After the last job."""
        ...
