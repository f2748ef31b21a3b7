"""A circuit breaker: an endpoint in trouble is left alone, and asked again with one request at a time."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from reflexion.models.circuit import BreakerPolicy, Circuit, CircuitState, Key, State, Verdict
from reflexion.models.errors import ErrorKind, ModelError
from reflexion.models.exchange import Exchange

logger = logging.getLogger(__name__)

FAULTS: frozenset[ErrorKind] = frozenset({"connection", "invalid_reply", "overloaded", "timeout"})
"""What counts against an endpoint. A rate limit, an empty account or a refused request is no fault of it."""

_WHY_LENGTH = 200
"""Characters of a fault's message that are kept."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one look at a circuit did to it."""

    before: State
    after: CircuitState
    epoch: int | None = None
    """What an admitted request leaves with; None where it was refused."""


class Circuits(Protocol):
    """Keeps circuits. Each step is atomic."""

    async def enter(self, key: Key) -> Step:
        """Ask to send a request."""
        ...

    async def leave(self, key: Key, epoch: int, verdict: Verdict, why: str) -> Step:
        """Tell how an admitted request ended. Heeded in any case, even if the caller is cancelled meanwhile."""
        ...

    async def states(self) -> list[CircuitState]:
        """All circuits that were ever entered, by endpoint and model."""
        ...


class LocalCircuits:
    """The circuits of one process."""

    def __init__(self, policy: BreakerPolicy | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy or BreakerPolicy()
        self._clock = clock
        self._circuits: dict[Key, Circuit] = {}

    async def enter(self, key: Key) -> Step:
        """Ask to send a request."""
        now = self._clock()
        circuit = self._circuits.setdefault(key, Circuit(since=now))
        before = circuit.state
        epoch = circuit.enter(now)
        return Step(before, circuit.seen(key, now), epoch)

    async def leave(self, key: Key, epoch: int, verdict: Verdict, why: str) -> Step:
        """Tell how an admitted request ended."""
        now = self._clock()
        circuit = self._circuits[key]
        before = circuit.state
        circuit.leave(self._policy, now, epoch, verdict, why)
        return Step(before, circuit.seen(key, now))

    async def states(self) -> list[CircuitState]:
        """All circuits that were ever entered, by endpoint and model."""
        now = self._clock()
        return [circuit.seen(key, now) for key, circuit in sorted(self._circuits.items())]


class Breaker:
    """The guard. Let it be the innermost, so that it is asked at the moment of sending, after any queue."""

    def __init__(
        self, circuits: Circuits | None = None, *, on_change: Callable[[State, CircuitState], None] | None = None
    ) -> None:
        """Guard by the given circuits; by default this process's own, with the default policy.

        Args:
            circuits: where they are kept.
            on_change: called with the state before and the circuit after each change of state that this process
                brought about.
        """
        self._circuits = circuits or LocalCircuits()
        self._on_change = on_change

    async def state(self) -> list[CircuitState]:
        """All circuits, by endpoint and model."""
        return await self._circuits.states()

    @asynccontextmanager
    async def around(self, exchange: Exchange) -> AsyncIterator[None]:
        """Let a request pass or refuse it, and learn from how it ended.

        Raises:
            ModelError: of kind `circuit_open`; another endpoint or model may be asked at once.
        """
        step = await self._circuits.enter(exchange.key)
        self._report(step)
        if step.epoch is None:
            raise _refusal(step.after)
        try:
            yield
        finally:
            verdict = verdict_of(exchange)
            why = str(exchange.error)[:_WHY_LENGTH] if verdict == "fault" else ""
            self._report(await self._circuits.leave(exchange.key, step.epoch, verdict, why))

    def _report(self, step: Step) -> None:
        if self._on_change is None or step.before == step.after.state:
            return
        try:
            self._on_change(step.before, step.after)
        except Exception:
            logger.exception("a listener failed on the circuit of %s at %s", step.after.model, step.after.endpoint)


def verdict_of(exchange: Exchange) -> Verdict:
    """What the end of a request says about its endpoint.

    A request that was cancelled, never sent, or turned down for what it asks says nothing: it neither counts against
    the endpoint nor proves that its model answers again.
    """
    if exchange.call is None:
        return "nothing"
    if exchange.error is not None and exchange.error.kind in FAULTS:
        return "fault"
    return "reply" if exchange.call["outcome"] in {"ok", "refused"} else "nothing"


def _refusal(circuit: CircuitState) -> ModelError:
    if circuit.state == "open":
        state, again = "open", f"it is tried again in {circuit.retry_in_s:.0f} s"
    else:
        state, again = "half-open", "one request is probing it just now"
    return ModelError(
        "circuit_open",
        f"{circuit.model} at {circuit.endpoint or 'no endpoint'} is not asked: its circuit has been {state} for "
        f"{circuit.since_s:.0f} s after {circuit.faults} of {circuit.requests} requests failed, and {again}; "
        f"the last fault: {circuit.why}",
        wait_s=circuit.retry_in_s,
    )
