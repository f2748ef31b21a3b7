"""The state machine of one circuit: closed, open, half-open. It knows no clock and no lock; a store drives it."""

import math
from dataclasses import dataclass, field
from typing import Literal

State = Literal["closed", "open", "half_open"]
Verdict = Literal["reply", "fault", "nothing"]
"""How a request ended: a reply, a fault of the endpoint, or something that says nothing about the endpoint."""

Key = tuple[str, str]
"""Endpoint and model: what circuits are kept by."""

SLICES = 10
"""A window of time is counted in so many slices, so that a circuit stays small whatever the traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When a circuit opens and for how long. Times in seconds."""

    consecutive: int = 5
    """Faults in a row that open the circuit. More than one call's tries, so that one unlucky call opens nothing."""
    share: float = 0.5
    """Share of faults among the requests of the window that opens it, 0..1."""
    least: int = 20
    """Requests that the window must hold before their share counts."""
    window_s: float = 60.0
    first_open_s: float = 15.0
    """How long a circuit stays open the first time; each repeated opening doubles it."""
    longest_open_s: float = 300.0

    def __post_init__(self) -> None:
        if self.consecutive < 1 or self.least < 1 or not 0 < self.share <= 1:
            raise ValueError("a breaker needs consecutive >= 1, least >= 1 and 0 < share <= 1")
        if self.window_s <= 0 or not 0 < self.first_open_s <= self.longest_open_s:
            raise ValueError("a breaker needs window_s > 0 and 0 < first_open_s <= longest_open_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitState:
    """A circuit as others may see it."""

    endpoint: str
    model: str
    state: State
    since_s: float
    """Seconds for which it has been in this state."""
    retry_in_s: float | None
    """Seconds until an open circuit lets a probe through; None where it is not open."""
    openings: int
    """How often it has opened in a row, without a window's time of peace between."""
    faults: int
    """Of `requests`, in the window that was counted last: where it is not closed, the one that opened it."""
    requests: int
    why: str
    """The last fault that opened it; empty where it never did."""


@dataclass(slots=True, kw_only=True)
class Circuit:
    """One circuit. Times are seconds on the clock of whoever keeps it; every field is plain JSON."""

    since: float
    state: State = "closed"
    epoch: int = 0
    """Grows with every change of state (in Redis with every probe too, as its place may be taken); a result counts only
    in the epoch in which its request began."""
    consecutive: int = 0
    slices: list[list[int]] = field(default_factory=list)
    """Number of the slice, requests and faults in it, oldest first."""
    openings: int = 0
    retry_at: float = 0.0
    probe_until: float = 0.0
    """When the probe's place falls free by itself: in one process never, it dies with its probes."""
    faults: int = 0
    requests: int = 0
    why: str = ""

    def enter(self, now: float) -> int | None:
        """Ask to send a request: the epoch to leave with, or None where it is refused."""
        if self.state == "closed":
            return self.epoch
        if now < (self.retry_at if self.state == "open" else self.probe_until):
            return None
        if self.state == "open":
            self._turn("half_open", now)
        self.probe_until = math.inf
        return self.epoch

    def leave(self, policy: BreakerPolicy, now: float, epoch: int, verdict: Verdict, why: str) -> None:
        """Tell how a request ended that entered in `epoch`."""
        if epoch != self.epoch:
            return
        if verdict == "nothing":
            self.probe_until = 0.0
        elif self.state == "half_open":
            if verdict == "fault":
                self._open(policy, now, why)
            else:
                self._turn("closed", now)
                self.requests = self.faults = 0
        else:
            self._count(policy, now, verdict == "fault")
            if verdict == "fault" and self._trips(policy):
                self._open(policy, now, why)

    def _count(self, policy: BreakerPolicy, now: float, fault: bool) -> None:
        self.consecutive = self.consecutive + 1 if fault else 0
        number = math.floor(now * SLICES / policy.window_s)
        self.slices = [kept for kept in self.slices if kept[0] > number - SLICES]
        if not self.slices or self.slices[-1][0] != number:
            self.slices.append([number, 0, 0])
        self.slices[-1][1] += 1
        self.slices[-1][2] += fault
        self.requests = sum(requests for _, requests, _ in self.slices)
        self.faults = sum(faults for _, _, faults in self.slices)

    def _trips(self, policy: BreakerPolicy) -> bool:
        return self.consecutive >= policy.consecutive or (
            self.requests >= policy.least and self.faults >= policy.share * self.requests
        )

    def _open(self, policy: BreakerPolicy, now: float, why: str) -> None:
        again = self.state == "half_open" or now - self.since <= policy.window_s
        self.openings = self.openings + 1 if again else 1
        self.why = why
        self._turn("open", now)
        self.retry_at = now + min(policy.longest_open_s, policy.first_open_s * 2.0 ** min(self.openings - 1, 60))

    def _turn(self, state: State, now: float) -> None:
        self.state = state
        self.since = now
        self.epoch += 1
        self.consecutive = 0
        self.slices = []
        self.probe_until = 0.0

    def seen(self, key: Key, now: float) -> CircuitState:
        """The circuit as others may see it."""
        return CircuitState(
            endpoint=key[0],
            model=key[1],
            state=self.state,
            since_s=max(0.0, now - self.since),
            retry_in_s=max(0.0, self.retry_at - now) if self.state == "open" else None,
            openings=self.openings,
            faults=self.faults,
            requests=self.requests,
            why=self.why,
        )
