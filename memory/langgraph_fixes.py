"""What LangGraph's savers and stores lack, whatever the database."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from reflexion.memory.locks import uninterrupted

CLOSE_S: Final = 10.0
"""How long closing waits for what the store was asked for before, in seconds."""


class EagerList(BaseCheckpointSaver[str]):
    """Reads the list before handing out its first entry.

    The savers hold their one lock while the caller loops over `alist`: writing inside it waits for ever.
    """

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first."""
        found = [entry async for entry in super().alist(config, filter=filter, before=before, limit=limit)]
        for entry in found:
            yield entry


class DiscreetSaver(BaseCheckpointSaver[str]):
    """Keeps what callers put into `configurable` out of the database.

    The savers, and LangGraph's server before them, copy every text and number in it into the metadata of each
    checkpoint, API keys too.
    """

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        given = config.get("configurable", {})
        position = {key: value for key, value in given.items() if key in _POSITION}
        # LangChain has copied `configurable` into `metadata` before.
        apart = {key: value for key, value in config.get("metadata", {}).items() if key not in given}
        discreet: RunnableConfig = {**config, "configurable": position, "metadata": apart}
        kept: Any = {key: value for key, value in metadata.items() if key not in given or key in _ORIGIN}
        return await super().aput(discreet, checkpoint, kept, new_versions)


_POSITION: Final = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id"})
_ORIGIN: Final = frozenset({"thread_id", "run_id", "graph_id", "assistant_id"})
"""What LangGraph's server knows a checkpoint by."""


class ClosableStore(AsyncBatchedBaseStore):
    """Ends the background task that a store only ends when it is garbage-collected."""

    __slots__ = ()

    async def aclose(self) -> None:
        """Finish what was asked for, then end the task. Nothing may be asked for afterwards."""
        await uninterrupted(self._end())

    async def _end(self) -> None:
        task = self._task
        if task is None:
            return
        # The task ends at an item that is no operation, but swallows one while it gathers a batch.
        for _ in range(2):
            self._aqueue.put_nowait(None)  # type: ignore[arg-type]
        await asyncio.wait([task], timeout=CLOSE_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
