"""Find, start and end the process of a server."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from . import serve
from .errors import EmbeddedModelError
from .serve import ServerFolder, ServerState

START_TIMEOUT_S = 180.0
"""Loading takes seconds; a busy machine with a cold disk may need minutes."""
_CONNECT_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 10.0
_POLL_S = 0.05


def command(folder: ServerFolder, weights: Path, model: str, idle_s: float) -> list[str]:
    """Return the command that runs the server of this folder."""
    options = ["--folder", str(folder.path), "--weights", str(weights), "--model", model, "--idle-s", str(idle_s)]
    # -P: nothing that lies beside the script may stand in for a module.
    return [sys.executable, "-P", serve.__file__, *options]


def is_ours(folder: ServerFolder, pid: int) -> bool:
    """Say whether `pid` runs the server of this folder.

    The process's command decides, because the number may have passed on to another program.
    """
    return f"{Path(serve.__file__).name} --folder {folder.path} --weights " in _command_line(pid)


def running(folder: ServerFolder) -> ServerState | None:
    """Return the recorded server if its process lives and listens, else None.

    It need not answer: with many requests waiting, every HTTP thread is taken for minutes, and to end a server
    that is only busy would break the work of all its clients.
    """
    state = folder.read_state()
    if state is None or not is_ours(folder, state.pid):
        return None
    address = urlsplit(state.url)
    try:
        socket.create_connection((address.hostname, address.port), timeout=_CONNECT_TIMEOUT_S).close()
    except TimeoutError:
        return state
    except OSError:
        return None
    return state


def launch(folder: ServerFolder, arguments: list[str]) -> ServerState:
    """Start the server and wait until it has written its state; the caller holds the start lock."""
    dead = folder.read_state()
    if dead is not None:
        end(folder, dead.pid)
        folder.clear_state()
    folder.log.unlink(missing_ok=True)
    # To append, so that the server can empty a log that grows too long and go on at its start.
    with folder.log.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            arguments,
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    # The server outlives us, but if it ends first it must not stay as a zombie.
    threading.Thread(target=process.wait, daemon=True).start()
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        state = folder.read_state()
        if state is not None:
            return state
        if process.poll() is not None:
            raise EmbeddedModelError(
                f"the embedded model's server ended with code {process.returncode} while starting; "
                f"its log is {folder.log}: {folder.log_tail()}"
            )
        time.sleep(_POLL_S)
    process.kill()
    raise EmbeddedModelError(
        f"the embedded model's server was not ready after {START_TIMEOUT_S:.0f} s; its log is {folder.log}: "
        f"{folder.log_tail()}"
    )


def end(folder: ServerFolder, pid: int) -> bool:
    """End the server of this folder if `pid` still is that; return whether it was."""
    if not is_ours(folder, pid):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + _END_TIMEOUT_S
        while time.monotonic() < deadline:
            if not is_ours(folder, pid):
                return True
            time.sleep(_POLL_S)
    raise EmbeddedModelError(f"the embedded model's server (pid {pid}) does not end")


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
