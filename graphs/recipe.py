"""What an agent is opened from, and what it holds once it is open."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable

from reflexion.evaluators import Evaluator
from reflexion.graphs.build import Model, assemble, make_kit
from reflexion.graphs.routing import recursion_limit
from reflexion.graphs.run import Graph
from reflexion.memory import Persistence, open_persistence
from reflexion.models import ConnectionSettings
from reflexion.nodes import MOST_ATTEMPTS, Kit, Settings, make_settings
from reflexion.nodes.degradation import Degradation


@dataclass(slots=True)
class Opened:
    """What an open agent holds."""

    persistence: Persistence
    kit: Kit
    graph: Graph
    stack: AsyncExitStack
    """Closes it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an agent is opened from; see `open_reflexion`."""

    settings: Settings
    model: Model | None
    evaluator: Evaluator | Callable[..., Any] | None
    actor: Runnable[Any, Any] | Callable[..., Any] | None
    connection: ConnectionSettings | None
    database_url: str | None
    embeddings: Embeddings | bool
    prompts: Path | None
    degradation: Degradation
    shared: bool

    async def open(self) -> Opened:
        """Open the database and compile the graph.

        Raises:
            DatabaseError: the database cannot be opened, or not be shared by workers that are to share it.
            PromptError: the prompt files cannot be used.
        """
        kit = await asyncio.to_thread(
            make_kit,
            self.model,
            self.evaluator,
            self.actor,
            self.connection,
            self.prompts,
            self.settings,
            self.degradation,
            self.database_url if self.shared else None,
        )
        async with AsyncExitStack() as stack:
            persistence = await stack.enter_async_context(
                open_persistence(self.database_url, embeddings=self.embeddings)
            )
            stack.push_async_callback(kit.models.aclose)
            if self.shared:
                persistence.needed_fences()
            await persistence.ledger.prune()
            kit = replace(kit, store=persistence.store)
            graph = assemble(kit).compile(
                checkpointer=persistence.checkpointer, store=persistence.store, name="reflexion"
            )
            most = make_settings(self.settings, max_attempts=MOST_ATTEMPTS, review="both")
            limited = graph.with_config(recursion_limit=recursion_limit(most))
            return Opened(persistence, kit, limited, stack.pop_all())
