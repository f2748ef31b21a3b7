"""Small states that workers share in PostgreSQL: read, stepped in Python, written back if nobody was faster."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any, TypeVar

from reflexion.models.shared_postgres import SharedPostgres

T = TypeVar("T")

LONGEST_PAUSE_S = 0.05


class PostgresStates:
    """A row of JSON for each name, with a version.

    No lock is held between reading and writing, as the process may be stopped in between for any time, and all others
    would stand still with it. Who loses a race reads again; the processes race, the tasks of one take turns.
    """

    def __init__(
        self, where: str | SharedPostgres, kind: str, *, clock: Callable[[], float] | None = None, patience_s: float
    ) -> None:
        """Keep states of one kind; `clock` replaces the server's, for tests."""
        self._server = SharedPostgres.at(where, [_DDL])
        self._patience_s = patience_s
        self._kind = kind
        self._clock = clock
        self._turns: dict[str, asyncio.Lock] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def change(self, name: str, step: Callable[[Any, float], tuple[Any, T]]) -> T:
        """Step a state.

        Args:
            name: whose.
            step: makes of the state (None at first) and the server's time in seconds the next state, plain JSON, and
                what is returned; called again where another process was faster.

        Raises:
            ModelError: of kind `connection`: the database cannot be reached.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._turns, self._loop = {}, loop
        async with self._turns.setdefault(name, asyncio.Lock()):
            pause_s = 0.001
            while True:
                [[version, stored, now]] = await self._ask(_READ, [self._kind, name])
                saved = None if stored is None else json.loads(stored)
                after, result = step(saved, self._clock() if self._clock else float(now))
                text = json.dumps(after)
                if text == stored:
                    return result
                values = [text, self._kind, name]
                if version is None:
                    written = await self._ask(_INSERT, values)
                else:
                    written = await self._ask(_UPDATE, [*values, version])
                if written:
                    return result
                await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - no secret
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    async def names(self) -> list[str]:
        """Of all states of this kind."""
        return [name for (name,) in await self._ask(_NAMES, [self._kind])]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._server.aclose()

    async def _ask(self, sql: str, parameters: list[Any]) -> list[Any]:
        return await self._server.ask(sql, parameters, patience_s=self._patience_s)


_DDL = """
CREATE TABLE IF NOT EXISTS reflexion_shared (
    kind text NOT NULL, name text NOT NULL, version bigint NOT NULL DEFAULT 1, state text NOT NULL,
    PRIMARY KEY (kind, name)
)
"""
_READ = """
SELECT version, state, extract(epoch FROM clock_timestamp()) FROM (SELECT 1) AS always
LEFT JOIN reflexion_shared ON kind = %s AND name = %s
"""
_INSERT = "INSERT INTO reflexion_shared (state, kind, name) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1"
_UPDATE = """
UPDATE reflexion_shared SET version = version + 1, state = %s WHERE kind = %s AND name = %s AND version = %s RETURNING 1
"""
_NAMES = "SELECT name FROM reflexion_shared WHERE kind = %s ORDER BY name"
