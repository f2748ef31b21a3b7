"""The process that serves the embedded model, and the folder where its clients meet it.

llama.cpp's OpenAI-compatible server on loopback. A process of its own, because a crash in native code must not take
the client along, and because the next command then finds the model loaded. It ends itself once nobody needs it.

Run by its path and importing nothing of reflexion: the package would cost it a second and 50 MB.
"""

import argparse
import importlib
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

SLOTS = 2
"""Requests served at once. More bring no throughput; with one, a short call waits behind a long one."""
CONTEXT_TOKENS = 4096
"""Per slot, prompt and reply together. A task with tests, a lesson and a plan is under 2,000 tokens, and two
cores read a full window for half a minute. Costs 12 kB (0.5B) or 28 kB (1.5B) of memory a token."""
CONNECTIONS = 64
"""HTTP threads. A request holds one while it waits for a slot; with none free not even a refusal is sent."""
PROMPT_CACHE_MIB = 256
LOG_LIMIT_BYTES = 1 << 20
_TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class ServerState:
    """How to reach a running server. Contains its key: never log it."""

    url: str
    """Without /v1."""
    pid: int
    api_key: str = field(repr=False)
    model: str
    started: float
    """Seconds since the epoch."""


class ServerFolder:
    """The meeting place of one server and its clients; exists once for each user, machine and model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lease = path / "lease"
        """Clients hold a shared lock on it while they use the server; the lock dies with its process."""
        self.start_lock = path / "start.lock"
        """Held by whoever starts or ends the server."""
        self.log = path / "server.log"
        self._state = path / "state.json"

    def create(self) -> None:
        """Make the folder, readable by this user only."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.chmod(0o700)

    def read_state(self) -> ServerState | None:
        """Return the recorded state; None where there is none or another release wrote it."""
        with suppress(OSError, ValueError, TypeError):
            return ServerState(**json.loads(self._state.read_text(encoding="utf-8")))
        return None

    def write_state(self, state: ServerState) -> None:
        """Replace the state at once; mkstemp gives mode 0600, as the key needs."""
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix="state-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(state), file)
        Path(temporary).replace(self._state)

    def clear_state(self) -> None:
        """Forget the recorded server."""
        self._state.unlink(missing_ok=True)

    def log_tail(self, limit: int = 1500) -> str:
        """Return the last `limit` characters of the log, empty where there is none."""
        with suppress(OSError):
            return self.log.read_text(encoding="utf-8", errors="replace")[-limit:].strip()
        return ""

    def take_lease(self) -> int:
        """Hold the server; returns a file descriptor, and closing it gives the lease back.

        Blocks for the moment in which a server that ends itself holds the lease alone.
        """
        lease = self._open_lease()
        try:
            fcntl.flock(lease, fcntl.LOCK_SH)
        except BaseException:
            os.close(lease)
            raise
        return lease

    def take_lease_alone(self) -> int | None:
        """Take the lease if no client holds it, else return None; closing the descriptor gives it back."""
        lease = self._open_lease()
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lease)
            return None
        return lease

    def _open_lease(self) -> int:
        return os.open(self.lease, os.O_RDWR | os.O_CREAT, 0o600)


def thread_count(cores: int) -> int:
    """Return how many threads compute: one core stays free for the clients where there are more than two."""
    return cores - 1 if cores > 2 else cores


def main() -> None:
    """Load the model, write the state, and serve until SIGTERM or until nobody needs the server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--idle-s", type=float, required=True)
    options = parser.parse_args()
    # The default action ends the process at once, even inside native code; a parent may have had it ignored.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    folder = ServerFolder(options.folder)
    key = secrets.token_urlsafe(32)
    server = _load(options.weights, options.model, key)
    folder.write_state(
        ServerState(
            url=server.listening_address,
            pid=os.getpid(),
            api_key=key,
            model=options.model,
            started=time.time(),
        )
    )
    _serve_until_idle(server, folder, options.idle_s)
    # Not a normal exit: native threads are still running, and tearing them down can crash.
    os._exit(0)


def _load(weights: Path, model: str, key: str) -> Any:
    # Waiting threads must sleep, not spin: the cores are shared. OpenMP reads this once, when it is loaded.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {model}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # Every user of the machine can reach loopback.
    params.api_keys = [key]
    params.ui = False
    params.endpoint_metrics = True
    params.n_threads_http = CONNECTIONS
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CONTEXT_TOKENS
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.use_jinja = True
    # Repacked weights would be a second copy: a third more memory, and no faster here.
    params.no_extra_bufts = True
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = thread_count(cores)
    params.verbosity = 1  # errors only: more would write prompts into the log
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        # What is wrong stands in the log above this line; a traceback would only push it out of the error text.
        sys.exit(f"llama.cpp cannot serve {weights}: {error}")


def _serve_until_idle(server: Any, folder: ServerFolder, idle_s: float) -> None:
    """Return when no client has held the lease and nothing has been asked for `idle_s` seconds.

    Returns with the lease held alone and the state gone: a client that comes now waits until this process has
    ended, and then finds no server rather than a dying one.
    """
    seen = ""
    idle_since = time.monotonic()
    while True:
        time.sleep(_TICK_S)
        _bound_log()
        lease = folder.take_lease_alone()
        state = folder.read_state()
        # A server that the state does not name can be found by no client, so no lease is meant for it.
        named = state is not None and state.pid == os.getpid()
        activity = server.handle_metrics()
        if (named and lease is None) or activity != seen or "requests_processing 0" not in activity:
            seen = activity
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since >= idle_s:
            if named:
                folder.clear_state()
            return
        if lease is not None:
            os.close(lease)


def _bound_log() -> None:
    """Empty the log, which is our standard error, when it has grown too long."""
    if os.fstat(2).st_size > LOG_LIMIT_BYTES:
        os.ftruncate(2, 0)


if __name__ == "__main__":
    main()
