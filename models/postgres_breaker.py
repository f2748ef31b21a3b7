"""Circuits that workers share through PostgreSQL, with the semantics of `circuit.Circuit`."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

from reflexion.models.breaker import Step
from reflexion.models.circuit import BreakerPolicy, Circuit, CircuitState, Key, Verdict
from reflexion.models.errors import ModelError
from reflexion.models.postgres_state import PostgresStates
from reflexion.models.shared_circuits import SharedCircuits
from reflexion.models.shared_postgres import SharedPostgres


class PostgresCircuits(SharedCircuits):
    """Circuits in PostgreSQL, on the server's clock."""

    server = "PostgreSQL"
    unreachable = (ModelError, OSError, TimeoutError)

    def __init__(
        self,
        where: str | SharedPostgres,
        policy: BreakerPolicy | None = None,
        *,
        prefix: str = "circuit",
        lease_s: float = 15.0,
        patience_s: float = 1.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Share circuits.

        Args:
            where: `postgresql://user:password@host:port/database`, or one that others use.
            policy: must be the same in every process.
            prefix: of the rows; one for each endpoint and model.
            lease_s: seconds after which the place of a probe whose process died falls free.
            patience_s: seconds for which the answer to one statement is waited for.
            clock: replaces the server's clock, for tests.
        """
        self._policy = policy or BreakerPolicy()
        super().__init__(self._policy, lease_s=lease_s, patience_s=None)
        self._states = PostgresStates(where, prefix, clock=clock, patience_s=patience_s)

    async def states(self) -> list[CircuitState]:
        """All circuits in the database, by endpoint and model."""
        keys = [cast("Key", tuple(json.loads(name))) for name in await self._states.names()]
        return [(await self._step(key, "look")).after for key in sorted(keys)]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._states.aclose()

    async def _step(self, key: Key, what: str, epoch: int = 0, verdict: Verdict = "nothing", why: str = "") -> Step:
        def step(saved: Any, now: float) -> tuple[Any, Step]:
            circuit = Circuit(**saved) if saved else Circuit(since=now)
            before, admitted = circuit.state, None
            if what == "enter":
                admitted = self._enter(circuit, now)
            elif what == "leave":
                circuit.leave(self._policy, now, epoch, verdict, why.encode("utf-8", "replace").decode())
            elif what == "renew" and epoch == circuit.epoch and circuit.probe_until > 0:
                circuit.probe_until = now + self._lease_s
            return asdict(circuit), Step(before, circuit.seen(key, now), admitted)

        done: Step = await self._in_time(lambda: self._states.change(json.dumps(key), step))
        return done

    def _enter(self, circuit: Circuit, now: float) -> int | None:
        epoch = circuit.enter(now)
        if epoch is None or circuit.state == "closed":
            return epoch
        # A probe's place may be taken, so that its result counts in an epoch of its own.
        circuit.epoch += 1
        circuit.probe_until = now + self._lease_s
        return circuit.epoch
