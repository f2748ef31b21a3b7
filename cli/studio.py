"""`reflexion studio`: LangGraph's dev server with our graph and our database, from any folder."""

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import signal
import socket
import tempfile
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from dotenv import load_dotenv

from reflexion.cli.options import INTERRUPTED
from reflexion.graphs import ConfigurationError, server
from reflexion.graphs.installation import Installation, read_installation
from reflexion.memory import open_persistence
from reflexion.nodes import make_settings
from reflexion.prompts import PromptBook

HOST, USUAL_PORT = "127.0.0.1", 2024
CLOSE_S = 5
"""How long the end waits for streams that a browser holds open, in seconds."""
POLL_S = 0.1
RECENT = 500
"""Newest checkpoints whose threads the server is told of: those of some fifty runs."""


def serve(port: int | None, *, jobs: int, database: str | None, verbose: bool) -> int:
    """Serve until a signal comes; returns the exit code.

    Args:
        port: None for 2024, or any free one where that is taken.
        jobs: runs at the same time.
        database: its URL; None for the configured one.
        verbose: show the server's log.

    Raises:
        ConfigurationError: the server is not installed or does not start, or a setting cannot be used.
    """
    if importlib.util.find_spec("langgraph_api") is None:
        raise ConfigurationError('the dev server is not installed: pip install "reflexion-graph[studio]"')
    address = f"http://{HOST}:{_free_port(port)}"
    # The whole of it, since tracing has variables of its own; the environment wins.
    load_dotenv(".env")
    installation = read_installation(**({} if database is None else {"database_url": database}))
    # What is wrong with any of these is said here, and not in the server's log.
    make_settings()
    PromptBook.load(installation.prompts)
    threads = _hand_over(installation)
    told = _ends_by_signal()
    with _folder_of_its_own(), _announced(address, threads):
        try:
            _run(int(address.rpartition(":")[2]), jobs, verbose=verbose)
        except SystemExit as error:
            if not told:
                raise ConfigurationError("the server did not start: its log says why, with --verbose more") from error
    return INTERRUPTED


def _ends_by_signal() -> list[int]:
    """Let SIGINT and SIGTERM do the same; returns a list to which each that comes is added."""
    told: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return told


def _run(port: int, jobs: int, *, verbose: bool) -> None:
    os.environ.setdefault("LOG_LEVEL", "INFO" if verbose else "ERROR")
    os.environ.setdefault("LANGGRAPH_NO_VERSION_CHECK", "true")
    from langgraph_api.cli import run_server  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and slow

    logging.getLogger("langgraph_api.cli").setLevel(logging.WARNING)
    if not verbose:
        # Whoever asked for the run gets its error; the log would repeat it with two tracebacks.
        for name in ("langgraph_api.worker", "langgraph_runtime_inmem.queue"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    run_server(
        HOST,
        port,
        graphs={"reflexion": "reflexion.graphs.studio:graph"},
        checkpointer={"path": f"{server.__file__}:checkpointer"},
        store={"path": f"{server.__file__}:store"},
        n_jobs_per_worker=jobs,
        disable_persistence=True,
        server_level="INFO" if verbose else "ERROR",
        timeout_graceful_shutdown=CLOSE_S,
    )


def _hand_over(installation: Installation) -> list[str]:
    """Put what names a file into the environment as an absolute path, since the server works in another folder.

    Returns:
        The database's threads, see `_look_into`.
    """
    os.environ["REFLEXION_DATABASE_URL"], threads = asyncio.run(_look_into(installation))
    for name, path in {"PROMPTS": installation.prompts, "EMBEDDED_PATH": installation.embedded_path}.items():
        if path is not None:
            os.environ[f"REFLEXION_{name}"] = str(path.expanduser().absolute())
    for name, value in os.environ.items():
        if name.startswith("REFLEXION_") and name.endswith("MODEL") and value.endswith(".gguf"):
            os.environ[name] = str(Path(value).absolute())
    return threads


async def _look_into(installation: Installation) -> tuple[str, list[str]]:
    """The database's URL with an absolute path, and its recent threads with UUIDs for names, the oldest first."""
    url = installation.database_url
    async with open_persistence(url, embeddings=installation.embeds) as persistence:
        found = [entry.config["configurable"] async for entry in persistence.checkpointer.alist(None, limit=RECENT)]
        threads = dict.fromkeys(place["thread_id"] for place in found if _is_uuid(place["thread_id"]))
        absolute = persistence.url if url is None or url.startswith("sqlite:") else url
        return absolute, list(threads)[::-1]


def _is_uuid(name: str) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _free_port(wanted: int | None) -> int:
    """A port that can be had.

    Raises:
        ConfigurationError: the one that is wanted cannot.
    """
    try:
        return _bind(USUAL_PORT if wanted is None else wanted)
    except OSError as error:
        if wanted is not None:
            raise ConfigurationError(f"--port {wanted}: cannot be had: {error.strerror}") from error
        return _bind(0)


def _bind(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        bound: int = probe.getsockname()[1]
        return bound


@contextlib.contextmanager
def _folder_of_its_own() -> Iterator[None]:
    """The server makes a folder where it is started, and nothing in it is needed later."""
    with tempfile.TemporaryDirectory(prefix="reflexion-studio-") as folder, contextlib.chdir(folder):
        yield


@contextlib.contextmanager
def _announced(address: str, threads: list[str]) -> Iterator[None]:
    """Print the addresses as soon as the server answers and has the threads on its list."""
    ended = threading.Event()

    def wait() -> None:
        while not _answers(address):
            if ended.wait(POLL_S):
                return
        for thread in threads:
            with contextlib.suppress(OSError):  # the others are to be seen all the same
                _ask(
                    f"{address}/threads",
                    {"thread_id": thread, "metadata": {"graph_id": "reflexion"}, "if_exists": "do_nothing"},
                )
        lines = [
            f"API      {address}",
            f"docs     {address}/docs",
            f"Studio   https://smith.langchain.com/studio/?baseUrl={address}",
            "Ctrl-C ends it.",
        ]
        print("\n".join(lines), flush=True)  # noqa: T201

    threading.Thread(target=wait, name="reflexion-studio", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _answers(address: str) -> bool:
    try:
        _ask(f"{address}/ok")
    except OSError:
        return False
    return True


def _ask(url: str, body: dict[str, Any] | None = None) -> None:
    # A proxy in the environment has nothing to do with this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else json.dumps(body).encode()
    with opener.open(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=10):  # noqa: S310
        pass
