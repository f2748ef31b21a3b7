"""What `langgraph.json` names besides the graph: our database as the server's checkpointer and store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from reflexion.graphs.installation import read_installation
from reflexion.memory import Persistence, open_persistence


@asynccontextmanager
async def checkpointer() -> AsyncIterator[BaseCheckpointSaver[str]]:
    """Keeps the server's threads where `open_reflexion` keeps its own."""
    async with _opened() as persistence:
        yield persistence.checkpointer


@asynccontextmanager
async def store() -> AsyncIterator[BaseStore]:
    """Shares lessons with runs from Python and the command line."""
    async with _opened() as persistence:
        yield persistence.store


@asynccontextmanager
async def _opened() -> AsyncIterator[Persistence]:
    installation = await asyncio.to_thread(read_installation)
    async with open_persistence(installation.database_url) as persistence:
        yield persistence
