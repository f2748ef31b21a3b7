"""Makes of a task what an engine runs."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from reflexion.batch.economy import Economy, Savings, felt, saving
from reflexion.batch.engine import Job
from reflexion.batch.journal import Due
from reflexion.batch.tasks import Numbered, Task
from reflexion.nodes import Settings, make_settings

_THREADS = uuid.UUID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
"""Namespace of the names of threads."""


def task_of(due: Due) -> Task:
    """The task; there is none in a bad line."""
    assert isinstance(due.item, Numbered)
    return due.item.task


class Jobs:
    """Makes the jobs of one batch, with what it saves by at the time."""

    def __init__(self, batch_id: str, settings: Settings, economy: Economy, tell: Callable[..., None]) -> None:
        self._batch_id = batch_id
        self._settings = settings
        self._economy = economy
        self._tell = tell
        self._savings = Savings()

    @property
    def savings(self) -> Savings:
        """What tasks without settings of their own do without."""
        return felt(self._settings, self._savings)

    def make(self, due: Due, left: float) -> Job:
        """The job of a task.

        Args:
            due: the task.
            left: the share of money or time that is left, 0..1.
        """
        task = task_of(due)
        settings: Mapping[str, Any] = task.context
        self._save(left)
        if self._savings != Savings():
            settings = {**settings, **saving(make_settings(self._settings, **settings), self._savings)}
        # By its text too, so that another text is another thread; and new after each record, so that a thread that
        # has ended without one still has the result.
        name = f"{self._batch_id}/{task.id}/{due.item.fingerprint}/{due.tries}"
        return Job(
            batch_id=self._batch_id,
            task_id=task.id,
            thread_id=str(uuid.uuid5(_THREADS, name)),
            task=task.task,
            tests=task.tests,
            expect=task.expect,
            criteria=task.criteria,
            settings=settings,
            priority=task.priority,
        )

    def _save(self, left: float) -> None:
        before, self._savings = self.savings, self._economy(left)
        if self.savings != before:
            self._tell("saving", left=left, **asdict(self.savings))
