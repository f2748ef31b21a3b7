"""What surrounds a run besides its settings: where its ledger is kept, and the budgets around its own."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from reflexion.models import Budget, LedgerLine, LedgerStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One run's; steps find it in `current`, since a run's context is its settings and nothing else."""

    store: LedgerStore | None = None
    """None for a run that keeps its ledger in its state alone."""

    budget: Budget | None = None
    """The budget around the run's own, such as its thread's or its batch's."""

    recovered: Sequence[LedgerLine] = ()
    """The ledger of a run that is resumed: its state may not know of calls in flight when its process died."""

    batch_id: str = ""
    priority: int = 0
    """Where requests queue, higher goes first."""


current: ContextVar[Scope] = ContextVar("scope", default=Scope())  # noqa: B039 - it is frozen
