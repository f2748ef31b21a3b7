"""What surrounds a run besides its settings: where its ledger is kept, and the budgets around its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from reflexion.models import Budget, LedgerLine, LedgerStore, SharedBudget
from reflexion.models.fence import Fence
from reflexion.models.kept import KeptReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One run's; steps find it in `current`, since a run's context is its settings and nothing else."""

    store: LedgerStore | None = None
    """None for a run that is not called by `Reflexion`."""

    budget: Budget | SharedBudget | None = None
    """The budget around the thread's and the run's own, such as a batch's."""

    recovered: Sequence[LedgerLine] = ()
    """The ledger of a run that is resumed: its state may not know of calls in flight when its process died."""

    replies: Sequence[KeptReply] = ()
    """What such a run was answered, and no checkpoint may hold."""

    fence: Fence | None = None
    """The run's claim to its thread, where workers on several machines share the database."""

    batch_id: str = ""
    priority: int = 0
    """Where requests queue, higher goes first."""


current: ContextVar[Scope] = ContextVar("scope", default=Scope())  # noqa: B039 - it is frozen

_shared: list[LedgerStore] = []


@contextmanager
def shared_ledger(store: LedgerStore) -> Iterator[None]:
    """Meanwhile let runs of this process that bring no ledger, such as a server's, write this one."""
    _shared.append(store)
    try:
        yield
    finally:
        _shared.remove(store)


def ledger_store() -> LedgerStore | None:
    """The run's own ledger, else the shared one."""
    own = current.get().store
    return own or (_shared[-1] if _shared else None)
