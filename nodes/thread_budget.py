"""The budget of a thread: what all its runs may use together, read off the ledger."""

import time

from reflexion.models import Budget, LedgerStore, SharedBudget, Usage
from reflexion.nodes.settings import ConfigurationError, Settings


async def thread_budget(
    settings: Settings, thread_id: str, store: LedgerStore | None, around: Budget | SharedBudget | None
) -> Budget | SharedBudget | None:
    """What is left to a thread, inside the budget around it; that one where the thread has no limit.

    Raises:
        ConfigurationError: there is a limit, and no ledger that would know what was used.
    """
    limits = {
        "usd": settings.thread_budget_usd,
        "tokens": settings.thread_budget_tokens,
        "requests": settings.thread_budget_requests,
        "seconds": settings.thread_budget_s,
    }
    if all(limit is None for limit in limits.values()):
        return around
    if store is None or not thread_id:
        raise ConfigurationError(
            "a thread's budget needs a thread and a ledger that outlives a run: use open_reflexion, the server, "
            "or a budget for the run"
        )
    lines = await store.lines(thread_id=thread_id)
    return Budget(
        "thread",
        **limits,  # type: ignore[arg-type]  # each of its own type
        parent=around,
        spent=Usage.of(lines),
        elapsed_s=max(0.0, time.time() - lines[0]["started_at"]) if lines else 0.0,
    )
