"""A worker: takes tasks from Temporal and runs them, each step of them kept in PostgreSQL."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from reflexion.batch.temporal.desk import Desk, shared_budget
from reflexion.batch.temporal.place import Place
from reflexion.batch.temporal.workflow import ACTIVITY, CONFIGURATION, TaskWorkflow
from reflexion.graphs.agent import Reflexion
from reflexion.graphs.run import Drained
from reflexion.models import Fenced, ModelError, scrub
from reflexion.nodes import ConfigurationError

logger = logging.getLogger(__name__)

THREAD_WAIT_S = 60.0
"""How long a run waits for its thread, on which somebody may work by hand, in seconds."""
BEATS = 5
"""Heartbeats in the time after which a worker is taken for dead."""
_LONGEST_TEXT = 1_000
_AT_ONCE = timedelta(milliseconds=1)

Tell = Callable[[str], None]
"""Is told in a line what happens."""


class _Lost(Exception):  # noqa: N818 - an end, not an error
    """The run was broken off, and nobody asked for that: another worker goes on."""


class Tasks:
    """The activity of a worker."""

    def __init__(self, agent: Reflexion, desk: Desk, tell: Tell) -> None:
        """Run tasks with an agent that is open, and shared."""
        self._agent = agent
        self._desk = desk
        self._tell = tell

    @activity.defn(name=ACTIVITY)
    async def run(self, thread_id: str) -> None:
        """Run the job of a thread to its end, or go on with it.

        Raises:
            ApplicationError: it came to none; whether another worker is to try is in it.
        """
        lease = activity.info().heartbeat_timeout or timedelta(seconds=60)
        work = asyncio.create_task(self._work(thread_id))
        beating = asyncio.create_task(_beat(work, lease.total_seconds()))
        try:
            ended = await work
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details and details.cancel_requested:
                self._tell(f"{thread_id}: broken off")
                raise
            raise self._failed(thread_id, _Lost("the worker was to end, or had lost the task")) from None
        except (Drained, Fenced) as error:
            raise self._failed(thread_id, error) from None
        except Exception as error:
            logger.warning("thread %s failed", thread_id, exc_info=True)
            raise self._failed(thread_id, error) from None
        else:
            self._tell(f"{thread_id}: {ended}")
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _work(self, thread_id: str) -> str:
        """Returns how it ended."""
        order = await self._desk.get(thread_id)
        if order is None:
            raise ConfigurationError(f"the task of thread {thread_id} is not in the database: start its batch again")
        job = order.job
        ended = await self._agent.result(thread_id)
        if ended and ended.attempts:
            async with self._agent.persistence.fenced(thread_id, wait_s=THREAD_WAIT_S):
                return "had ended before"  # and whoever ended it, and may wake, writes no more
        self._tell(f"{thread_id}: {job.task_id!r}, worker {activity.info().attempt}")
        result = await self._agent.run(
            job.task,
            tests=job.tests,
            expect=job.expect,
            criteria=job.criteria,
            thread=thread_id,
            wait_s=THREAD_WAIT_S,
            budget=shared_budget(self._agent, job.batch_id, order.budget_usd, order.budget_tokens),
            batch=job.batch_id,
            priority=job.priority,
            **job.settings,
        )
        return result.stop_reason

    def _failed(self, thread_id: str, error: Exception) -> ApplicationError:
        """What Temporal is told: whether another worker is to try, and when."""
        text = scrub(str(error))[:_LONGEST_TEXT]
        self._tell(f"{thread_id}: {type(error).__name__}: {text}")
        handed_back = isinstance(error, Drained | Fenced | _Lost)
        # With a database that fails another worker, or a later time, may have better luck.
        retry = handed_back or isinstance(error, ModelError) or type(error).__module__.startswith("psycopg")
        return ApplicationError(
            text,
            type=CONFIGURATION if isinstance(error, ConfigurationError) else type(error).__name__,
            non_retryable=not retry,
            next_retry_delay=_AT_ONCE if handed_back else None,
        )


async def work(
    agent: Reflexion,
    url: str,
    client: Client,
    place: Place,
    *,
    concurrency: int,
    stop: asyncio.Event,
    drain_s: float,
    tell: Tell,
) -> None:
    """Work until `stop` is set, then hand back what is not finished.

    Args:
        agent: an open agent that is shared.
        url: its database.
        client: a connection to Temporal.
        place: which task queue to take from.
        concurrency: tasks at once.
        stop: asks for the end.
        drain_s: seconds that steps which are at work then may still take.
        tell: is told what happens.
    """
    desk = Desk(url)
    try:
        worker = Worker(
            client,
            task_queue=place.task_queue,
            workflows=[TaskWorkflow],
            activities=[Tasks(agent, desk, tell).run],
            # The workflow does nothing that the sandbox would have to forbid, and the sandbox imports all anew.
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=concurrency,
            # So long it may take until a task hears that it is cancelled.
            max_heartbeat_throttle_interval=timedelta(seconds=1),
            default_heartbeat_throttle_interval=timedelta(seconds=1),
            graceful_shutdown_timeout=timedelta(seconds=drain_s),
        )
        running = asyncio.create_task(worker.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                agent.drain()
                await worker.shutdown()
            await running
        finally:
            stopping.cancel()
    finally:
        await desk.aclose()


async def _beat(work: "asyncio.Task[str]", lease_s: float) -> None:
    """Tell Temporal that the task is at work; and break it off where it must have been given to another."""
    clock = asyncio.get_running_loop().time
    last = clock()
    while True:
        await asyncio.sleep(lease_s / BEATS)
        if clock() - last > lease_s:
            work.cancel()
            return
        activity.heartbeat()
        last = clock()
