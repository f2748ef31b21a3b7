"""Opens the database behind a URL: LangGraph's checkpointer and store in it, the ledger and the locks beside them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from platformdirs import user_data_dir

from reflexion.memory.locks import MemoryLocks, ThreadLocks
from reflexion.models.embedding import chosen
from reflexion.models.fence import Fence
from reflexion.models.ledger import LedgerStore, MemoryLedger

if TYPE_CHECKING:  # nobody needs the other database's driver
    from reflexion.memory.fences import PostgresFences

URL_FORMS = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://user:password@host:5432/database or memory://"


class DatabaseError(Exception):
    """The database cannot be opened: what happened, to what, what to do. Never contains a password."""


@dataclass(frozen=True, slots=True)
class Persistence:
    """An open database. It belongs to the event loop in which it was opened."""

    url: str
    """For display: without a password."""
    checkpointer: BaseCheckpointSaver[Any]
    """Keeps the state of every thread, step by step."""
    store: BaseStore
    """Keeps what threads share. It has no semantic index."""
    locks: ThreadLocks
    """Keep two runs from working on one thread at the same time, across processes."""
    ledger: LedgerStore
    """Keeps a line for every request to a model."""
    durable: bool
    """Whether anything is left when the process ends."""
    _size: Callable[[], Awaitable[int | None]] = field(repr=False)
    fences: "PostgresFences | None" = None
    """Keep workers on several machines apart; None where the database is on one machine."""

    def fenced(self, thread_id: str, *, wait_s: float = 0.0) -> AbstractAsyncContextManager[Fence]:
        """Take a thread over from whichever worker had it: from now on what that one writes is refused.

        Raises:
            DatabaseError: the database is none that several machines share.
            ThreadBusy: a run without a fence holds it, after `wait_s` seconds still.
        """
        return self.needed_fences().hold(thread_id, wait_s=wait_s)

    def needed_fences(self) -> "PostgresFences":
        """The fences; raises `DatabaseError` where there are none."""
        if self.fences is None:
            raise DatabaseError(
                f"{self.url} cannot keep workers on several machines apart: use PostgreSQL, with "
                "REFLEXION_DATABASE_URL=postgresql://user:password@host:5432/database"
            )
        return self.fences

    async def size_bytes(self) -> int | None:
        """Bytes on disk, write-ahead log included; None where nothing is on disk."""
        return await self._size()


def default_database_url() -> str:
    """The SQLite file in the user's data folder."""
    return f"sqlite:///{Path(user_data_dir('reflexion', appauthor=False)) / 'reflexion.sqlite'}"


@asynccontextmanager
async def open_persistence(
    url: str | None = None, *, embeddings: Embeddings | bool = True
) -> AsyncIterator[Persistence]:
    """Open the database behind `url`, creating it where it is missing.

    Args:
        url: see `URL_FORMS`; None for a SQLite file in the user's data folder.
        embeddings: by what the store finds similar tasks besides their words: True for the embedded model.

    Raises:
        DatabaseError: it cannot be opened.
    """
    async with AsyncExitStack() as stack:
        yield await _open(url or default_database_url(), stack, chosen(embeddings))


async def _open(url: str, stack: AsyncExitStack, embeddings: Embeddings | None) -> Persistence:
    # Imported late: each brings a database driver that the other's users have no need of.
    scheme, separator, rest = url.partition("://")
    match scheme:
        case "sqlite" if rest.startswith("/") and rest != "/":
            from reflexion.memory.sqlite import open_sqlite  # noqa: PLC0415

            return await open_sqlite(rest[1:], stack, embeddings)
        case "postgresql" | "postgres" if separator:
            from reflexion.memory.postgres import open_postgres  # noqa: PLC0415

            return await open_postgres(url, stack, embeddings)
        case "memory" if separator:
            return _open_memory()
        case _:
            # The text itself is not shown: it may hold a password.
            raise DatabaseError(f"unknown kind of database URL, scheme {scheme[:20]!r}: use {URL_FORMS}")


def _open_memory() -> Persistence:
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415
    from langgraph.store.memory import InMemoryStore  # noqa: PLC0415

    async def no_size() -> None:
        return None

    return Persistence(
        "memory://", InMemorySaver(), InMemoryStore(), MemoryLocks(), MemoryLedger(), durable=False, _size=no_size
    )
