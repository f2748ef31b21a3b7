"""The tasks that workers are to run, in a table of PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Final

from reflexion.batch.engine import Job, Terms
from reflexion.graphs.agent import Reflexion
from reflexion.models import SharedBudget
from reflexion.models.shared_postgres import SharedPostgres


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job, and what of its batch a worker has to know."""

    job: Job
    """Its settings are all of them: a worker adds none of its own."""
    budget_usd: Decimal | None
    budget_tokens: int | None


class Desk:
    """Where jobs lie for workers."""

    def __init__(self, url: str) -> None:
        """Use the database at `postgresql://user:password@host:port/database`."""
        self._server = SharedPostgres(url, [_TABLE])

    async def put(self, job: Job, terms: Terms) -> None:
        """Lay a job down; one that lies there is replaced."""
        usd = None if terms.budget_usd is None else str(terms.budget_usd)
        order = {"job": asdict(job), "budget_usd": usd, "budget_tokens": terms.budget_tokens}
        await self._server.ask(_PUT, [job.thread_id, json.dumps(order).encode()])

    async def get(self, thread_id: str) -> Order | None:
        """The job of a thread; None where it is not wanted any more."""
        rows = await self._server.ask("SELECT job FROM reflexion_job WHERE thread = %s", [thread_id])
        if not rows:
            return None
        order: Mapping[str, Any] = json.loads(bytes(rows[0][0]))
        usd = order["budget_usd"]
        return Order(
            job=Job(**order["job"]),
            budget_usd=None if usd is None else Decimal(usd),
            budget_tokens=order["budget_tokens"],
        )

    async def clear(self, threads: Sequence[str]) -> None:
        """Take jobs away."""
        await self._server.ask("DELETE FROM reflexion_job WHERE thread = ANY(%s)", [list(threads)])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._server.aclose()


def shared_budget(agent: Reflexion, batch_id: str, usd: Decimal | None, tokens: int | None) -> SharedBudget:
    """The budget of a batch, from which all workers spend."""
    return agent.shared_budget(f"batch {batch_id}", usd=usd, tokens=tokens, patient=True, suspends=True)


_TABLE: Final = "CREATE TABLE IF NOT EXISTS reflexion_job (thread text PRIMARY KEY, job bytea NOT NULL)"
_PUT: Final = "INSERT INTO reflexion_job VALUES (%s, %s) ON CONFLICT (thread) DO UPDATE SET job = excluded.job"
