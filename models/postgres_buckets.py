"""Token buckets and slots that workers share through PostgreSQL, with the semantics of `buckets`."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from reflexion.models.buckets import Answer, Bucket, Claim, Clock, Key, Limits, WaitingFor
from reflexion.models.errors import ModelError
from reflexion.models.postgres_state import PostgresStates
from reflexion.models.shared_buckets import HEAD_LEASE_S, POLL_S, SharedBuckets
from reflexion.models.shared_postgres import SharedPostgres


class PostgresBuckets(SharedBuckets):
    """Buckets and slots in PostgreSQL, on the server's clock."""

    server = "PostgreSQL"
    unreachable = (ModelError, OSError, TimeoutError)

    def __init__(
        self,
        where: str | SharedPostgres,
        *,
        lease_s: float = 30.0,
        patience_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        """Share buckets.

        Args:
            where: `postgresql://user:password@host:port/database`, or one that others use.
            lease_s: seconds after which what a dead process held counts as used and its slots are free.
            patience_s: seconds after which the database counts as unreachable.
            clock: replaces the server's clock, for tests.
        """
        super().__init__(lease_s=lease_s)
        self._states = PostgresStates(where, "limit", clock=clock, patience_s=patience_s)

    async def aclose(self) -> None:
        """Close the connections."""
        self._stop_renewing()
        await self._states.aclose()

    async def _run(self, key: Key, limits: Limits, what: str, **details: Any) -> Answer:
        def step(saved: Any, now: float) -> tuple[Any, Answer]:
            state = _State(**saved) if saved else _State()
            lane = _Lane(limits, state, now, self._lease_s)
            answer = getattr(lane, what)(**details)
            return lane.saved(), answer or lane.answer(taken=True)

        return await self._states.change(json.dumps(key), step)


@dataclass(slots=True)
class _State:
    """One endpoint and model, in plain JSON."""

    buckets: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    """When the leases of the calls in flight end."""
    heads: dict[str, dict[str, float]] = field(default_factory=dict)
    """Each process's first call."""


class _Lane:
    """One step on a state; as `redis_script` does it."""

    def __init__(self, limits: Limits, state: _State, now: float, lease_s: float) -> None:
        self._limits = limits
        self._state = state
        self._now = now
        self._lease_s = lease_s
        rates = {"requests": limits.requests, "tokens": limits.tokens}
        self._buckets = {
            kind: Bucket.restored(rate, state.buckets[kind]) if kind in state.buckets else Bucket(rate, now)
            for kind, rate in rates.items()
            if rate
        }
        for bucket in self._buckets.values():
            bucket.refill(now)
        for call in [call for call, till in state.held.items() if till <= now]:
            self._let_go(call, {})
        state.heads = {by: head for by, head in state.heads.items() if head["till"] > now}

    def saved(self) -> dict[str, Any]:
        self._state.buckets = {kind: bucket.saved() for kind, bucket in self._buckets.items()}
        return asdict(self._state)

    def answer(self, *, taken: bool, wait_s: float = 0.0, waiting_for: WaitingFor = "turn") -> Answer:
        left = {f"{kind}_left": bucket.level for kind, bucket in self._buckets.items()}
        return Answer(taken=taken, wait_s=wait_s, waiting_for=waiting_for, **left)

    def take(self, claim: dict[str, Any]) -> Answer:
        wanted, state, now = Claim(**claim), self._state, self._now
        if wanted.id in state.held:  # the client repeats what it got no answer to
            return self.answer(taken=True)
        state.heads[wanted.by] = {
            "till": now + HEAD_LEASE_S,
            "priority": wanted.priority,
            "due": now - wanted.turn_s,
            "arrived": now - wanted.waited_s,
        }
        if self._first() != wanted.by:
            return self.answer(taken=False, wait_s=POLL_S)
        if self._limits.concurrency is not None and len(state.held) >= self._limits.concurrency:
            return self.answer(taken=False, wait_s=POLL_S, waiting_for="concurrency")
        amounts: dict[WaitingFor, float] = {"requests": 1, "tokens": wanted.tokens}
        waits = {kind: self._buckets[kind].wait_s(amount) for kind, amount in amounts.items() if kind in self._buckets}
        if any(waits.values()):
            longest = max(waits, key=lambda kind: waits[kind])
            return self.answer(taken=False, wait_s=min(waits[longest], POLL_S), waiting_for=longest)
        state.held[wanted.id] = now + self._lease_s
        for kind in waits:
            self._buckets[kind].take(wanted.id, amounts[kind])
        del state.heads[wanted.by]
        return self.answer(taken=True)

    def settle(self, id: str, back: dict[str, float]) -> None:  # noqa: A002 - as the client names it
        if id in self._state.held:
            self._let_go(id, back)
            return
        # The lease ran out: what it took counts as used, what went beyond is still owed.
        for kind, bucket in self._buckets.items():
            bucket.level += min(0.0, back[kind])

    def renew(self, ids: list[str]) -> None:
        self._state.held.update({call: self._now + self._lease_s for call in ids if call in self._state.held})

    def withdraw(self, by: str) -> None:
        self._state.heads.pop(by, None)

    def _let_go(self, call: str, back: dict[str, float]) -> None:
        del self._state.held[call]
        for kind, bucket in self._buckets.items():
            if bucket.holds(call):
                bucket.settle(call, back.get(kind, 0.0))

    def _first(self) -> str:
        """As in `FairQueue`: within a priority who has been due longest, between priorities by age."""
        heads, ageing_s = self._state.heads, self._limits.ageing_s
        due: dict[float, str] = {}
        for by in sorted(heads, key=lambda by: (heads[by]["due"], by)):
            due.setdefault(heads[by]["priority"], by)
        return max(
            due.values(),
            key=lambda by: (
                heads[by]["priority"] + (self._now - heads[by]["arrived"]) / ageing_s,
                -heads[by]["arrived"],
            ),
        )
