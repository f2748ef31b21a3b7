"""Many tasks: one budget, one record each, and a batch that goes on where it was broken off."""

from reflexion.batch.economy import Economy, Savings
from reflexion.batch.engine import Engine, Health, Job, Spent, Terms
from reflexion.batch.errors import BatchBusy, BatchChanged, BatchError, NothingPossible, Unfinished
from reflexion.batch.local import LocalEngine
from reflexion.batch.progress import BatchEvent, Listener, Progress, StoppedBy
from reflexion.batch.reading import Tasks
from reflexion.batch.records import FAILED, STATUSES, Record, Status, status_of
from reflexion.batch.run import Batch, run_batch
from reflexion.batch.summary import Summary, summarize
from reflexion.batch.tasks import Task

__all__ = [
    "FAILED",
    "STATUSES",
    "Batch",
    "BatchBusy",
    "BatchChanged",
    "BatchError",
    "BatchEvent",
    "Economy",
    "Engine",
    "Health",
    "Job",
    "Listener",
    "LocalEngine",
    "NothingPossible",
    "Progress",
    "Record",
    "Savings",
    "Spent",
    "Status",
    "StoppedBy",
    "Summary",
    "Task",
    "Tasks",
    "Terms",
    "Unfinished",
    "run_batch",
    "status_of",
    "summarize",
]
