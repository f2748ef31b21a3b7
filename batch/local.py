"""Runs the tasks of a batch in this process."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from reflexion.batch.engine import Health, Job, Spent, Terms
from reflexion.batch.errors import BatchError, NothingPossible, Unfinished
from reflexion.graphs.agent import Reflexion
from reflexion.models import Budget, Suspended
from reflexion.nodes import Settings

BUSY_S = 60.0
"""How long a run waits for its thread, which another process may just be giving up, in seconds."""


class LocalEngine:
    """An `Engine` over an open agent."""

    def __init__(self, agent: Reflexion) -> None:
        self._agent = agent
        self._budget = Budget("batch")
        self._resumed = False

    @property
    def settings(self) -> Settings:
        """The agent's."""
        return self._agent.settings

    async def open(self, terms: Terms) -> None:
        """See `Engine`. The ledger knows what was spent before."""
        spent = await self._agent.persistence.ledger.total(batch_id=terms.batch_id) if terms.resumed else None
        self._resumed = terms.resumed
        self._budget = Budget(
            "batch", usd=terms.budget_usd, tokens=terms.budget_tokens, patient=True, suspends=True, spent=spent
        )
        if self._agent.settings.review != "off":
            raise BatchError("review: nobody is there to review the tasks of a batch: set it to off")
        self._agent.check(self._budget)

    async def run(self, job: Job) -> Mapping[str, Any]:
        """See `Engine`."""
        try:
            if self._resumed and (ended := await self._agent.result(job.thread_id)) and ended.attempts:
                return ended.as_json()
            result = await self._agent.run(
                job.task,
                tests=job.tests,
                expect=job.expect,
                criteria=job.criteria,
                thread=job.thread_id,
                wait_s=BUSY_S,
                budget=self._budget,
                batch=job.batch_id,
                priority=job.priority,
                **job.settings,
            )
        except Suspended as error:
            raise await unfinished(self._agent, job.thread_id, str(error)) from None
        except Exception as error:
            if _of_the_database(error):
                raise NothingPossible(f"the database fails: {type(error).__name__}: {error}") from error
            raise
        return result.as_json()

    async def forget(self, threads: Sequence[str]) -> None:
        """See `Engine`."""
        for thread in threads:
            await self._agent.persistence.checkpointer.adelete_thread(thread)

    def spent(self) -> Spent:
        """See `Engine`."""
        used = self._budget.used
        return Spent(requests=used.requests or 0, tokens=used.tokens or 0, cost_usd=used.usd)

    def left(self) -> float:
        """See `Engine`."""
        limit = self._budget.limit
        return limit.share(limit.without(self._budget.used))

    async def health(self) -> Health:
        """See `Engine`."""
        seam = self._agent.seam
        return Health(
            limits=seam.limits.state() if seam.limits else (),
            circuits=await seam.breaker.state(),
        )

    async def close(self) -> None:
        """Nothing is to be closed: the agent is its owner's."""


async def unfinished(agent: Reflexion, thread_id: str, why: str) -> Unfinished:
    """What is said of a run that the batch's budget has suspended."""
    result = await agent.so_far(thread_id, "budget", why)
    return Unfinished(why, result.as_json() if result else {})


def _of_the_database(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) or type(error).__module__.startswith("psycopg")
