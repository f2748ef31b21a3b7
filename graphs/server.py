"""What `langgraph.json` names besides the graph: our database as the server's checkpointer and store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from reflexion.graphs.installation import read_installation
from reflexion.memory import Persistence, open_persistence
from reflexion.nodes.scope import shared_ledger


@asynccontextmanager
async def checkpointer() -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Keeps the server's threads, and the ledger of its runs, where `open_reflexion` keeps its own."""
    async with _opened() as persistence, _deleting_later(persistence.checkpointer) as saver:
        await persistence.ledger.prune()
        with shared_ledger(persistence.ledger):
            yield saver


@asynccontextmanager
async def store() -> AsyncIterator[BaseStore]:
    """Shares lessons with runs from Python and the command line."""
    async with _opened() as persistence:
        yield persistence.store


@asynccontextmanager
async def _opened() -> AsyncIterator[Persistence]:
    installation = await asyncio.to_thread(read_installation)
    async with open_persistence(installation.database_url, embeddings=installation.embeds) as persistence:
        yield persistence


@asynccontextmanager
async def _deleting_later(saver: BaseCheckpointSaver[Any]) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Begin the deletion of a thread, and do not wait for it.

    The dev server looks up a thread's place in its list, waits for this, and then drops whatever stands at that
    place: of several stateless runs that end at once it would drop other threads, whose runs then never end.
    """
    at_work: set[asyncio.Task[None]] = set()
    delete = saver.adelete_thread

    async def begin(thread_id: str) -> None:
        task = asyncio.create_task(delete(thread_id))
        at_work.add(task)
        task.add_done_callback(at_work.discard)

    saver.adelete_thread = begin  # type: ignore[method-assign]
    try:
        yield saver
    finally:
        await asyncio.gather(*at_work, return_exceptions=True)
