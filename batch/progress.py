"""What a batch says of itself while it works."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from reflexion.batch.economy import Savings
from reflexion.batch.engine import Health, Spent
from reflexion.batch.records import Status

BatchEvent = dict[str, Any]
"""What has happened; `event` says which.

`batch_started` (batch_id, finished: by earlier processes, by status), `task_started` (line, id), `task_finished`
(line, id, status, error, requests, tokens, cost_usd), `saving` (cheaper_model, fewer_attempts, no_planner, left: 0..1),
`paused` (reason, seconds), `resumed`, `stopped` (reason, by: `StoppedBy`), `batch_finished` (complete, ran).
"""

StoppedBy = Literal["", "asked", "budget", "time", "fail_fast", "refused", "unreachable", "engine"]
"""What keeps a batch from its end: `Batch.stop`; its budget or time; a task in `error`, with `fail_fast`; an endpoint
that refuses the key, the account or the model; one that stays down; an engine that can run nothing any more."""

Listener = Callable[[BatchEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a batch stands."""

    batch_id: str
    counts: Mapping[Status, int]
    """Records by status, those of earlier processes included."""
    bad_lines: int
    """How many of these are of lines that are no task: they are run when the line is mended."""
    ran: int
    """Tasks that this process has brought to an end."""
    read: int
    """Lines that have been read, without blank ones."""
    expected: int | None
    """Lines that there will be, as far as can be told; None where it cannot."""
    running: int
    waiting: int
    """Read, and not handed out."""
    elapsed_s: float
    """Seconds of this process."""
    rate: float | None
    """Tasks per second of this process, lately; None before there are any."""
    spent: Spent
    budget_usd: Decimal | None
    budget_tokens: int | None
    forecast_usd: Decimal | None
    """What the whole batch will have cost, if the rest costs as much a task; None where that is unknown."""
    forecast_tokens: int | None
    left: float
    """The share of the budget or the time that is left, 0..1."""
    savings: Savings
    paused: str
    """Why no task is handed out for now; empty where they are."""
    stopped: str
    """Why no task is handed out any more; empty where that is not so, or all is done."""
    stopped_by: StoppedBy
    """The same in a word."""
    health: Health = field(default_factory=Health)
