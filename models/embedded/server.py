"""The client side of the embedded model: start or join the one server that a user's processes share."""

import asyncio
import hashlib
import importlib.util
import os
import platform
import threading
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from . import process
from . import weights as _weights
from .errors import EmbeddedModelError
from .serve import ServerFolder, ServerState


@dataclass(frozen=True, slots=True)
class LocalServer:
    """What a chat client needs to know."""

    base_url: str
    """Ends in /v1."""
    api_key: str = field(repr=False)
    model: str


class EmbeddedModel:
    """This process's hold on the server; one for each process is enough.

    `model` is one of the names in `weights.MODELS` (default: the largest installed one); `path` is a user's
    own GGUF file instead. `cache` is the folder for weights and servers (default: the user's cache folder).
    A server started from here ends itself after `idle_s` seconds in which nobody used it.
    """

    def __init__(
        self,
        model: str | None = None,
        path: Path | None = None,
        *,
        cache: Path | None = None,
        idle_s: float = 300.0,
    ) -> None:
        if model is not None and path is not None:
            raise EmbeddedModelError("give either the name of an embedded model or a GGUF file, not both")
        self._model = model
        self._path = path
        self._cache = cache
        self._idle_s = idle_s
        # Chosen once: the lease belongs to this folder, whatever is installed later.
        self._place: tuple[str, ServerFolder] | None = None
        self._lease: int | None = None
        # Not an asyncio lock: the object may be used from several event loops, and threads do the work.
        self._lock = threading.Lock()

    async def start(self) -> LocalServer:
        """Return the running server; start it where there is none.

        Safe to call at any time, concurrently, and from several processes. The first call takes some seconds.
        Raises `EmbeddedModelError` if weights or llama.cpp are not installed or the server does not come up.
        """
        return await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """Give the lease back; the server goes on for others and ends when idle."""
        await asyncio.to_thread(self._stop)

    def _start(self) -> LocalServer:
        if os.name != "posix":
            raise EmbeddedModelError(
                "the embedded model runs on Linux and macOS only; set REFLEXION_BASE_URL to a model endpoint"
            )
        with self._lock:
            if self._place is None:
                self._place = self._choose()
            model, folder = self._place
            try:
                state = self._join_or_launch(model, folder)
            except OSError as error:
                raise EmbeddedModelError(f"cannot run the embedded model in {folder.path}: {error}") from error
        return LocalServer(base_url=f"{state.url}/v1", api_key=state.api_key, model=state.model)

    def _join_or_launch(self, model: str, folder: ServerFolder) -> ServerState:
        folder.create()
        # Before looking: a server that we hold cannot end itself between the look and the first request.
        if self._lease is None:
            self._lease = folder.take_lease()
        if state := process.running(folder):
            return state
        with FileLock(folder.start_lock):
            # Another process may have started it while we waited for the lock.
            return process.running(folder) or process.launch(folder, self._command(model, folder))

    def _choose(self) -> tuple[str, ServerFolder]:
        """Return the model's name and the folder where its server is met."""
        servers = _servers(_cache(self._cache))
        if self._path is None:
            model = self._model or installed_model(self._cache) or _weights.MODELS[-1].name
            return model, ServerFolder(servers / _weights.by_name(model).name)
        file = _weights.check_gguf(self._path)
        facts = file.stat()
        identity = hashlib.sha256(f"{file}\0{facts.st_size}\0{facts.st_mtime_ns}".encode()).hexdigest()
        return file.stem, ServerFolder(servers / f"{file.stem}-{identity[:12]}")

    def _command(self, model: str, folder: ServerFolder) -> list[str]:
        if not _has_llama():
            raise EmbeddedModelError(f"llama.cpp is not installed; {_weights.advice()}")
        if self._path is None:
            file = _weights.ensure(_weights.by_name(model), _cache(self._cache))
        else:
            file = _weights.check_gguf(self._path)
        return process.command(folder, file, model, self._idle_s)

    def _stop(self) -> None:
        with self._lock:
            if self._lease is not None:
                os.close(self._lease)
                self._lease = None


def is_installed() -> bool:
    """Say whether an embedded model can be served without anything from the network; reads the disk."""
    return _has_llama() and installed_model() is not None


def installed_model(cache: Path | None = None) -> str | None:
    """Return the name of the largest model whose weights are on this machine, or None; reads the disk."""
    folder = _cache(cache)
    return next((weights.name for weights in _weights.MODELS if _weights.is_present(weights, folder)), None)


def shutdown_server(cache: Path | None = None) -> int:
    """End this user's servers on this machine, in use or not; return how many were running.

    Blocks for up to some seconds. A recorded process id that now belongs to another program is left alone.
    """
    ended = 0
    for path in _servers(_cache(cache)).glob("*/"):
        folder = ServerFolder(path)
        with FileLock(folder.start_lock):
            state = folder.read_state()
            ended += state is not None and process.end(folder, state.pid)
            folder.clear_state()
    return ended


def _has_llama() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None


def _cache(cache: Path | None) -> Path:
    # One spelling: a server is known by the folder in its command.
    return (cache or user_cache_path("reflexion")).resolve()


def _servers(cache: Path) -> Path:
    # A cache in a home that several machines or containers share holds one folder for each of them.
    return cache / "servers" / (platform.node() or "localhost")
