"""What one node's calls are made on behalf of: whose they are, what they may spend, and what they have used."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from reflexion.models.budget import Budget
from reflexion.models.ends import DeadlineExceeded
from reflexion.models.kept import KeptReplies
from reflexion.models.ledger import Ledger
from reflexion.models.usage import Call


@dataclass(slots=True, kw_only=True)
class Meter:
    """One node's share of a run."""

    role: str
    attempt: int
    run_id: str = ""
    thread_id: str = ""
    batch_id: str = ""
    priority: int = 0
    """Where requests queue, higher goes first."""
    budget: Budget | None = None
    """What the run may still spend, inside whatever budgets are around it; None for any amount."""
    ledger: Ledger = field(default_factory=Ledger)
    replies: KeptReplies | None = None
    """What the step was answered before its process died; None where nothing is kept."""
    deadline: float | None = None
    """When the run must end, on the clock; None for never."""
    clock: Callable[[], float] = time.monotonic
    on_token: Callable[[str], None] | None = None
    """Hears every piece of text as it arrives; None where nobody listens, and replies come as a whole."""
    calls: list[Call] = field(default_factory=list)
    """The ledger lines of this node's requests."""

    def left_s(self) -> float | None:
        """Seconds until the run must end, or None.

        Raises:
            DeadlineExceeded: there are none left.
        """
        if self.deadline is None:
            return None
        left = self.deadline - self.clock()
        if left <= 0:
            raise DeadlineExceeded("the run's time is used up")
        return left
