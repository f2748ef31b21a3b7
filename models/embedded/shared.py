"""What the server and its clients leave for each other in a folder: the lease, the state and the log."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True, slots=True)
class ServerState:
    """How to reach a running server. Contains its key: never log it."""

    url: str
    """Without /v1."""
    pid: int
    api_key: str
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

    def log_tail(self, limit: int = 500) -> str:
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

    def command(self, weights: Path, model: str, idle_s: float) -> list[str]:
        """Return the command that runs the server of this folder."""
        options = ["--weights", str(weights), "--model", model, "--idle-s", str(idle_s)]
        # -P: nothing that lies in the working directory may stand in for a module.
        return [sys.executable, "-P", *self._mark, *options]

    def is_ours(self, pid: int) -> bool:
        """Say whether `pid` runs the server of this folder.

        The process's command decides, because the number may have passed on to another program.
        """
        return " ".join(["", *self._mark, "--weights "]) in _command_line(pid)

    @property
    def _mark(self) -> list[str]:
        return ["-m", "reflexion.models.embedded.serve", "--folder", str(self.path)]


def _command_line(pid: int) -> str:
    """Return a process's arguments, joined by blanks; empty where it has ended or is not to be seen."""
    with suppress(OSError):
        if Path("/proc/self/cmdline").exists():
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        ps = subprocess.run(  # noqa: S603
            ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return ps.stdout
    return ""
