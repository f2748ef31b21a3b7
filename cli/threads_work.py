"""What the commands of `reflexion threads` do."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

from reflexion.cli.options import PASSED, given
from reflexion.graphs import ConfigurationError
from reflexion.graphs.installation import read_installation
from reflexion.memory import Pruned, Threads, open_persistence

T = TypeVar("T")


def show_all(database: str | None, *, as_json: bool) -> int:
    """`reflexion threads list`."""
    known = _work(database, lambda threads: threads.all())
    if as_json:
        found = [asdict(thread) | {"last_used_at": thread.last_used_at} for thread in known]
        print(json.dumps({"threads": found}, ensure_ascii=False))  # noqa: T201
        return PASSED
    for thread in known:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(thread.last_used_at)) if thread.last_used_at else "–"
        print(f"{used:<16} {thread.bytes:>13,} bytes {thread.checkpoints:>6} steps  {thread.id}")  # noqa: T201
    print(f"{len(known)} threads, {sum(thread.bytes for thread in known):,} bytes")  # noqa: T201
    return PASSED


def delete_named(names: Sequence[str], database: str | None, *, as_json: bool) -> int:
    """`reflexion threads delete`."""

    async def delete(threads: Threads) -> None:
        known = {thread.id for thread in await threads.all()}
        if missing := [name for name in names if name not in known]:
            raise ConfigurationError(f"there is no thread {missing[0]!r}: `reflexion threads list` shows them")
        for name in dict.fromkeys(names):
            await threads.delete(name)

    _work(database, delete)
    return _say(Pruned(len(set(names)), 0), "deleted", as_json=as_json)


def prune_old(days: float, database: str | None, *, keep_last: bool, as_json: bool) -> int:
    """`reflexion threads prune`."""
    pruned = _work(database, lambda threads: threads.prune(older_than_s=days * 86_400, keep_last=keep_last))
    return _say(pruned, "cut down to their last step" if keep_last else "deleted", as_json=as_json)


def _work(database: str | None, work: Callable[[Threads], Awaitable[T]]) -> T:
    installation = read_installation(**given(database_url=database))

    async def opened() -> T:
        async with open_persistence(installation.database_url, embeddings=False) as persistence:
            return await work(persistence.threads)

    return asyncio.run(opened())


def _say(pruned: Pruned, what: str, *, as_json: bool) -> int:
    busy = f"; {pruned.busy} are busy and stay as they are" if pruned.busy else ""
    print(json.dumps(asdict(pruned)) if as_json else f"{pruned.threads} threads {what}{busy}")  # noqa: T201
    return PASSED
