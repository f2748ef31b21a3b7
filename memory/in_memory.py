"""Checkpointer, store, ledger and locks that live and die with the process."""

from collections import Counter
from collections.abc import Sequence

from langchain_core.embeddings import Embeddings
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import IndexConfig
from langgraph.store.memory import InMemoryStore

from reflexion.memory.locks import MemoryLocks
from reflexion.memory.persistence import Persistence
from reflexion.memory.threads import Thread
from reflexion.models.ledger import MemoryLedger


def open_in_memory(embeddings: Embeddings | None) -> Persistence:
    """A database that forgets everything."""

    async def no_size() -> None:
        return None

    # It takes vectors of any length: the number of dimensions is not looked at.
    index = None if embeddings is None else IndexConfig(dims=0, embed=embeddings, fields=["task"])
    saver = _Saver()
    return Persistence(
        "memory://",
        saver,
        InMemoryStore(index=index),
        MemoryLocks(),
        MemoryLedger(),
        durable=False,
        _size=no_size,
        _threads=saver.threads,
    )


class _Saver(InMemorySaver):
    """Can also name its threads."""

    async def threads(self) -> list[Thread]:
        """Every thread."""
        values = Counter[str]()
        for (thread_id, *_), (_, value) in self.blobs.items():
            values[thread_id] += len(value)
        return [
            Thread(key, max(kept), len(kept), values[key] + sum(len(c) + len(m) for (_, c), (_, m), _ in kept.values()))
            for key, namespaces in self.storage.items()
            if (kept := namespaces.get(""))
        ]

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete threads.

        Raises:
            NotImplementedError: they are to be cut down.
        """
        if strategy != "delete":
            raise NotImplementedError("memory:// keeps whole threads or none")
        for thread_id in thread_ids:
            await self.adelete_thread(thread_id)
