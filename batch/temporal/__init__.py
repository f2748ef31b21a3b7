"""Batches on many machines: Temporal hands the tasks to workers, PostgreSQL keeps what they do."""

try:
    import temporalio as _temporalio  # noqa: F401 - the extra may be missing
except ModuleNotFoundError as error:
    raise ImportError('batches on many machines need Temporal: pip install "reflexion-graph[temporal]"') from error

from reflexion.batch.temporal.engine import TemporalEngine
from reflexion.batch.temporal.place import Place
from reflexion.batch.temporal.worker import work

__all__ = ["Place", "TemporalEngine", "work"]
