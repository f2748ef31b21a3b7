"""The workflow of one task. What it is told and what it tells are names and numbers: Temporal's history holds no task,
no answer and no secret, and nothing that is larger than it allows."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, CancelledError

NAME = "reflexion"
ACTIVITY = "run"
CONFIGURATION = "ConfigurationError"
"""What an activity calls the failure of a job that no worker can run as it is."""

LONGEST = timedelta(days=1)
"""How long one worker may work on a task."""
ATTEMPTS = 20
"""So many workers may die over a task, or hand it back, before it fails."""


@dataclass(frozen=True)
class Handed:
    """What a worker is told of a task."""

    thread_id: str
    """Under which PostgreSQL holds the task, its checkpoints and its result."""
    heartbeat_s: float


@workflow.defn(name=NAME)
class TaskWorkflow:
    """Has one task worked on until a worker has come to its end."""

    def __init__(self) -> None:
        self._paused = False
        self._work: workflow.ActivityHandle[None] | None = None

    @workflow.signal
    def pause(self) -> None:
        """Break the work off until `resume`."""
        self._paused = True
        if self._work:
            self._work.cancel()

    @workflow.signal
    def resume(self) -> None:
        """Go on."""
        self._paused = False

    @workflow.run
    async def run(self, handed: Handed) -> None:
        """Return when the result is in PostgreSQL."""
        while True:
            await workflow.wait_condition(lambda: not self._paused)
            self._work = workflow.start_activity(
                ACTIVITY,
                handed.thread_id,
                start_to_close_timeout=LONGEST,
                heartbeat_timeout=timedelta(seconds=handed.heartbeat_s),
                retry_policy=RetryPolicy(maximum_attempts=ATTEMPTS, maximum_interval=timedelta(minutes=1)),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            try:
                return await self._work
            except ActivityError as error:
                # Cancelled by nobody outside: by `pause`.
                if not isinstance(error.cause, CancelledError) or workflow.cancellation_reason() is not None:
                    raise
