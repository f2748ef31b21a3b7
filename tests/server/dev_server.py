"""LangGraph's dev server as a process of its own, on a free port, over a fake endpoint and a database of its own."""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reflexion.testing import FakeOpenAI

ROOT = Path(__file__).parents[2]
ROLES = ("actor", "evaluator", "reflector", "planner")
LESSON = "Check the empty list before taking its first item."
PLAN = "1. Look at the empty list."
MODEL = "common"
SECRET = "sk-very-secret-0123456789"
START_S = 100.0
"""It starts in a few seconds; without compiled bytecode, on a busy machine, in a minute."""


@dataclass(frozen=True, slots=True)
class DevServer:
    """A running server, and what belongs to it."""

    url: str
    endpoint: FakeOpenAI
    database_url: str
    log: Path


def free_port() -> int:
    """One that the system hands out to nobody else in the seconds until the server takes it."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")


@contextlib.contextmanager
def dev_server(folder: Path) -> Iterator[DevServer]:
    """`langgraph dev` with the repository's configuration; what the server itself writes lands in `folder`."""
    for name in ("langgraph.json", "graphs"):
        (folder / name).symlink_to(ROOT / name)
    port, log = free_port(), folder / "server.log"
    database_url = f"sqlite:///{folder / 'missing' / 'reflexion.sqlite'}"
    with FakeOpenAI(api_key=SECRET) as endpoint:
        environment = clean_environment() | {
            "REFLEXION_BASE_URL": endpoint.base_url,
            "REFLEXION_API_KEY": SECRET,
            "REFLEXION_MODEL": MODEL,
            "REFLEXION_DATABASE_URL": database_url,
        }
        arguments = ["--no-browser", "--no-reload", "--port", str(port), "--n-jobs-per-worker", "10"]
        command = [sys.executable, "-m", "langgraph_cli", "dev", *arguments]
        with process(command, cwd=folder, environment=environment, log=log) as running:
            wait_until_it_answers(f"http://127.0.0.1:{port}", running, log)
            yield DevServer(f"http://127.0.0.1:{port}", endpoint, database_url, log)


def clean_environment() -> dict[str, str]:
    """The environment without anybody's own configuration, and without calls to the outside."""
    names = ("REFLEXION_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return kept | {"LANGGRAPH_NO_VERSION_CHECK": "true", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "NO_COLOR": "1"}


@contextlib.contextmanager
def process(
    command: Sequence[str], *, cwd: Path, environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output goes to a file, ended with its children when the block is left."""
    with log.open("wb") as out:
        running = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield running
    finally:
        end(running)


def end(running: subprocess.Popen[bytes]) -> int:
    """End a process that leads a session, and what it has left in that; returns its exit code."""
    if running.poll() is None:
        running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(timeout=60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    return running.wait(timeout=60)


def wait_until_it_answers(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and running.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{url}/ok", timeout=10):
            return
        time.sleep(0.1)
    raise AssertionError(f"the server at {url} does not answer (exit code {running.poll()}):\n{log.read_text()}")


@dataclass(frozen=True, slots=True)
class Cast:
    """The models of one test, under names that no other test's requests have."""

    name: str
    endpoint: FakeOpenAI

    @classmethod
    def new(cls, endpoint: FakeOpenAI) -> "Cast":
        return cls(uuid.uuid4().hex[:8], endpoint)

    def model(self, role: str) -> str:
        return f"{self.name}-{role}"

    @property
    def context(self) -> dict[str, Any]:
        """The settings that give each role its model, and keep other tests' lessons away."""
        models = {f"{role}_model": self.model(role) for role in ROLES}
        return models | {"namespace": self.name, "memory_explore": 0, "memory_control": 0}

    def plays_two_attempts(self) -> None:
        """The first attempt falls short, every later one passes."""
        numbers = itertools.count(1)
        self.endpoint.default(self.model("actor"), lambda _: f"answer {next(numbers)}")
        self.endpoint.script(self.model("evaluator"), {"score": 4, "weaknesses": "the empty list is forgotten"})
        self.endpoint.default(self.model("evaluator"), {"score": 9})
        self.endpoint.default(self.model("reflector"), {"improvement": LESSON})
        self.endpoint.default(self.model("planner"), PLAN)

    def requests(self, role: str) -> list[str]:
        """The texts of the requests that reached a role's model."""
        return [
            "\n\n".join(message["content"] for message in request.body["messages"])
            for request in self.endpoint.requests_for(self.model(role))
        ]
