"""Does a thread that is used again and again stay as cheap as it was? Many runs of new tasks on one thread.

Each run fails once, reflects, plans and passes, against a server on this machine that answers at once. After every
block of runs: what the block has added to the database per run, in all and by table, and how long reading the state of
the thread takes. A thread's window of reflections is full after KEPT_REFLECTIONS runs; the blocks after it count.

First, what a single run of ten answers of 200,000 characters leaves in SQLite.

Bytes are those of the tables with their indexes (SQLite: write-ahead log written back). Times are the fastest of 100
reads, as what else happens on the machine only ever adds to them, and to be compared within one run only.

    uv run python benchmarks/thread_growth.py [--runs 1000] [--database postgresql://…/an_empty_database]
"""

import argparse
import asyncio
import itertools
import json
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reflexion.graphs import Reflexion, Settings, open_reflexion
from reflexion.memory.records import KEPT_REFLECTIONS
from reflexion.models import ConnectionSettings
from reflexion.testing import FakeOpenAI

BLOCK, READS, THREAD = 100, 100, "one"
SQLITE_TABLES = """
    SELECT COALESCE(tbl_name, dbstat.name), SUM(pgsize) FROM dbstat LEFT JOIN sqlite_master USING (name) GROUP BY 1
"""
POSTGRES_TABLES = (
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relnamespace = 2200"
)


@dataclass(frozen=True)
class Measured:
    runs: int
    tables: dict[str, int]
    """Bytes of each with its indexes."""
    read_ms: float
    thread_bytes: int
    """Of the thread's last state as JSON."""

    @property
    def total(self) -> int:
        return sum(self.tables.values())


def script(server: FakeOpenAI) -> None:
    """Every reply differs, as real ones do, and is as long as the others of its role."""
    numbers = itertools.count()
    server.default("actor", lambda _: f"attempt {next(numbers):08} " + "at the answer " * 20)
    server.default("reflector", lambda _: {"improvement": f"Check the case {next(numbers):08} before anything else."})
    server.default("planner", lambda _: f"1. Look at case {next(numbers):08}.\n2. Then write the answer.")


def judge(task: Any, attempt: Any) -> float:
    return float(attempt["number"] > 1 and len(attempt["answer"]) < 100_000)


def tables(url: str) -> dict[str, int]:
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return dict(connection.execute(SQLITE_TABLES).fetchall())
    import psycopg  # noqa: PLC0415

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM")
        return {str(name): int(size) for name, size in connection.execute(POSTGRES_TABLES).fetchall()}


async def measure(agent: Reflexion, runs: int, url: str) -> Measured:
    config: Any = {"configurable": {"thread_id": THREAD}}
    times = []
    for _ in range(READS):
        begun = time.perf_counter()
        state = await agent.graph.aget_state(config)
        times.append(time.perf_counter() - begun)
    size = len(json.dumps(state.values, default=str))
    return Measured(runs, await asyncio.to_thread(tables, url), 1000 * min(times), size)


def agent_of(server: FakeOpenAI, url: str) -> Reflexion:
    roles = {f"{role}_model": role for role in ("actor", "evaluator", "reflector", "planner")}
    connection = ConnectionSettings(base_url=server.base_url, api_key="any")
    return open_reflexion(Settings(**roles), evaluator=judge, connection=connection, database_url=url)


async def long_answers(url: str) -> int:
    with FakeOpenAI() as server:
        script(server)
        numbers = itertools.count()
        server.default("actor", lambda _: f"{next(numbers):08}" * 25_000)
        async with agent_of(server, url) as agent:
            await agent.run("Write at length.", threshold=1, max_attempts=10)
    return sum(tables(url).values())


async def grow(url: str, runs: int) -> list[Measured]:
    with FakeOpenAI() as server:
        script(server)
        async with agent_of(server, url) as agent:
            measured = [await measure(agent, 0, url)]
            for number in range(1, runs + 1):
                result = await agent.run(f"Task {number:08}: sum the numbers of a list.", thread=THREAD)
                assert result.passed
                assert len(result.attempts) == 2
                if number == KEPT_REFLECTIONS or number % BLOCK == 0:
                    measured.append(await measure(agent, number, url))
        return measured


def show(measured: list[Measured]) -> None:
    names = [
        name for name in measured[-1].tables if measured[-1].tables[name] - measured[0].tables.get(name, 0) > 2**16
    ]
    print(f"| runs | kB a run | {' | '.join(names)} | reading, ms | state, kB |")
    print(f"|---|---:|{'---:|' * len(names)}---:|---:|")
    for before, after in itertools.pairwise(measured):
        count = 1000 * (after.runs - before.runs)
        by_table = [f"{(after.tables[name] - before.tables.get(name, 0)) / count:.1f}" for name in names]
        print(
            f"| {before.runs + 1}–{after.runs} | {(after.total - before.total) / count:.1f} | {' | '.join(by_table)} | "
            f"{after.read_ms:.2f} | {after.thread_bytes / 1000:.1f} |"
        )
    full = [each for each in measured if each.runs >= BLOCK]
    if len(full) > 2:
        rates = [
            (after.total - before.total) / (after.runs - before.runs) for before, after in itertools.pairwise(full)
        ]
        first, last = full[0], full[-1]
        print(
            "\nlast block against the first whole one, after which the window was full: "
            f"bytes a run {rates[-1] / rates[0]:.2f}, reading the state {last.read_ms / first.read_ms:.2f}, "
            f"its size {last.thread_bytes / first.thread_bytes:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--database", help="an empty database [a SQLite file that is deleted afterwards]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        long = asyncio.run(long_answers(f"sqlite:///{Path(folder) / 'long.sqlite'}"))
        print(f"a run of ten answers of 200,000 characters: {long / 1e6:.1f} MB\n")
        show(asyncio.run(grow(given.database or f"sqlite:///{Path(folder) / 'growth.sqlite'}", given.runs)))


if __name__ == "__main__":
    main()
