"""Runs the tasks of a batch on Temporal's workers."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import psycopg
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TerminatedError,
    WorkflowAlreadyStartedError,
)
from temporalio.service import RPCError

from reflexion.batch.engine import Health, Job, Spent, Terms
from reflexion.batch.errors import BatchError, NothingPossible
from reflexion.batch.local import unfinished
from reflexion.batch.temporal.desk import Desk, shared_budget
from reflexion.batch.temporal.place import Place, connect, read_place
from reflexion.batch.temporal.workflow import CONFIGURATION, NAME, Handed
from reflexion.graphs.agent import Reflexion, open_reflexion
from reflexion.graphs.installation import Installation, read_installation
from reflexion.models import ModelError, Suspended
from reflexion.nodes import ConfigurationError, Settings, make_settings

logger = logging.getLogger(__name__)

ANSWER_S = 5.0
"""How soon a worker lets go of a task that is cancelled, in seconds, unless it is busy."""
LOOK_S = 2.0
"""How often it is asked what the batch has spent, in seconds."""


class TemporalEngine:
    """An `Engine` that hands each task to a workflow.

    Temporal knows names alone. The task, its checkpoints, its result and the batch's budget are in PostgreSQL, which
    decides what has been done: a workflow that is started again finds the result there.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        installation: Installation | None = None,
        place: Place | None = None,
    ) -> None:
        """Remember what to use; None reads the environment and `.env`.

        Args:
            settings: of the runs; those of the workers do not count.
            installation: the database, which has to be PostgreSQL, and how models are reached.
            place: the server and its task queue.
        """
        self._settings = settings or make_settings()
        self._installation = installation or read_installation()
        self._place = place or read_place()
        self._terms = Terms(batch_id="")
        self._spent = Spent()
        self._left = 1.0
        self._stack = AsyncExitStack()

    @property
    def settings(self) -> Settings:
        """Those that were given."""
        return self._settings

    async def open(self, terms: Terms) -> None:
        """See `Engine`.

        Raises:
            DatabaseError: the database is none that workers can share.
            BatchError: Temporal cannot be reached.
        """
        if self._settings.review != "off":
            raise BatchError("review: nobody is there to review the tasks of a batch: set it to off")
        async with AsyncExitStack() as stack:
            self._agent: Reflexion = await stack.enter_async_context(open_shared(self._settings, self._installation))
            self._client: Client = await connect(self._place)
            self._desk = Desk(database_of(self._installation))
            stack.push_async_callback(self._desk.aclose)
            self._terms = terms
            self._budget = shared_budget(self._agent, terms.batch_id, terms.budget_usd, terms.budget_tokens)
            self._agent.check(self._budget)
            await self._look()
            watching = asyncio.create_task(self._watch())
            stack.push_async_callback(_ended, watching)
            self._stack = stack.pop_all()

    async def run(self, job: Job) -> Mapping[str, Any]:
        """See `Engine`. A workflow that is at work on the job already, for a client that died, is waited for."""
        if self._terms.resumed and (result := await self._result(job)):
            return result
        try:
            await self._finish(job)
        except WorkflowFailureError as failure:
            told = _told(failure)
            if isinstance(told, Suspended):
                told = await unfinished(self._agent, job.thread_id, str(told))
            raise told from None
        except (RPCError, ModelError) as error:
            raise NothingPossible(f"no task can be handed out: {error}") from error
        if result := await self._result(job, whatever=True):
            return result
        raise RuntimeError(f"the workflow of thread {job.thread_id} has ended, and its result is not in the database")

    async def forget(self, jobs: Sequence[str]) -> None:
        """See `Engine`."""
        for thread in jobs:
            await self._agent.persistence.checkpointer.adelete_thread(thread)
        await self._desk.clear(jobs)

    def spent(self) -> Spent:
        """See `Engine`; a few seconds old while the batch is at work."""
        return self._spent

    def left(self) -> float:
        """See `Engine`; a few seconds old."""
        return self._left

    async def health(self) -> Health:
        """Nothing: the workers know."""
        return Health()

    async def close(self) -> None:
        """Close the connections."""
        await self._look()
        await self._stack.aclose()

    async def _result(self, job: Job, *, whatever: bool = False) -> Mapping[str, Any] | None:
        """The result of the job's thread; unless `whatever`, only one that is worth more than a new run."""
        ended = await self._agent.result(job.thread_id)
        return ended.as_json() if ended and (whatever or ended.attempts) else None

    async def _finish(self, job: Job) -> None:
        """Return when the job's workflow has ended well."""
        while True:
            starting = asyncio.create_task(self._start(job))
            try:
                handle, began = await asyncio.shield(starting)
                await handle.result()
            except asyncio.CancelledError:
                await asyncio.shield(self._stop(starting))
                raise
            except WorkflowFailureError as failure:
                # Whoever began it may just have broken it off.
                if began or not isinstance(failure.cause, CancelledError | TerminatedError):
                    raise
            else:
                return

    async def _start(self, job: Job) -> tuple[WorkflowHandle[Any, Any], bool]:
        """The job's workflow, and whether it was begun here: it may be running already."""
        own = make_settings(self._settings, **job.settings)
        await self._desk.put(replace(job, settings=own.model_dump(mode="json")), self._terms)
        name = f"{job.batch_id}/{job.thread_id}"
        try:
            handle = await self._client.start_workflow(
                NAME,
                Handed(job.thread_id, self._place.heartbeat_s),
                id=name,
                task_queue=self._place.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                priority=Priority(
                    priority_key=priority_key(job.priority), fairness_key=fairness_key(own, job.batch_id)
                ),
            )
        except WorkflowAlreadyStartedError:
            return self._client.get_workflow_handle(name), False
        return handle, True

    async def _stop(self, starting: "asyncio.Task[tuple[WorkflowHandle[Any, Any], bool]]") -> None:
        """Cancel a workflow and wait until nothing of it is at work."""
        try:
            handle, _ = await starting
        except (RPCError, ModelError):
            return  # it was not begun
        try:
            await handle.cancel()
            if await _ended_within(ANSWER_S, handle):
                return
            # Of a worker that died it is known after a heartbeat's time.
            if not await _at_work(handle) or not await _ended_within(2 * self._place.heartbeat_s, handle):
                await handle.terminate("the batch was broken off, and no worker answered")
        except (RPCError, ModelError) as error:
            logger.warning("workflow %s may still be at work: %s", handle.id, error)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        try:
            total = await self._agent.persistence.ledger.total(batch_id=self._terms.batch_id)
            await self._budget.look()
        except (ModelError, psycopg.Error) as error:
            logger.warning("what the batch has spent cannot be told: %s", error)
            return
        tokens = total.prompt_tokens + total.completion_tokens
        self._spent = Spent(requests=total.requests, tokens=tokens, cost_usd=total.cost_usd)
        self._left = self._budget.limit.share(self._budget.remaining)


async def _ended_within(seconds: float, handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await handle.result()
    except TimeoutError:
        return False
    except WorkflowFailureError:
        pass
    return True


async def _at_work(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether a worker has the task, as far as Temporal knows."""
    waiting = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    activities = (await handle.describe()).raw_description.pending_activities
    return any(activity.state != waiting for activity in activities)


def open_shared(settings: Settings, installation: Installation) -> Reflexion:
    """An agent that shares its database with workers."""
    return open_reflexion(
        settings,
        connection=installation,
        database_url=installation.database_url,
        prompts=installation.prompts,
        shared=True,
    )


def database_of(installation: Installation) -> str:
    """The URL of the database.

    Raises:
        BatchError: there is none.
    """
    url = installation.database_url or ""
    if not url.startswith(("postgresql://", "postgres://")):
        raise BatchError(
            "workers share a PostgreSQL: name it as REFLEXION_DATABASE_URL=postgresql://user:password@host:5432/database"
        )
    return url


def priority_key(priority: int) -> int:
    """Temporal's five priorities, 1 going first, for ours from -100 to 100."""
    return 3 if priority == 0 else (1 if priority >= 50 else 2) if priority > 0 else (5 if priority <= -50 else 4)


def fairness_key(settings: Settings, batch_id: str) -> str:
    """For whom a task is: of those that wait, each gets its turn. The namespace of lessons where one was named, else
    the batch."""
    default = Settings.model_fields["namespace"].default
    name = batch_id if settings.namespace == default else settings.namespace
    return name.encode()[:64].decode(errors="ignore")


def _told(failure: WorkflowFailureError) -> Exception:
    """What a workflow's failure is for the batch."""
    cause: BaseException | None = failure.cause
    if isinstance(cause, ActivityError):
        cause = cause.cause or cause
    if isinstance(cause, ApplicationError):
        if cause.type == CONFIGURATION:
            return ConfigurationError(cause.message)
        if cause.type == Suspended.__name__:
            return Suspended(cause.message)
        return RuntimeError(f"{cause.type}: {cause.message}")
    reason = cause.message if isinstance(cause, FailureError) else str(cause)
    return RuntimeError(f"the workflow was ended in Temporal: {reason or type(cause).__name__}")


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
