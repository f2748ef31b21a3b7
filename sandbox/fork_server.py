"""The parent's side of the fork server: processes that need not start an interpreter and import everything anew.

Only for children that lock themselves completely (Landlock and seccomp): no other may come from a process that later
children come from as well.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

from reflexion.sandbox.forking import MAX_REQUEST
from reflexion.sandbox.starting import MODULES, job_file, start_interpreter

NEEDED_LAYERS = frozenset(("landlock", "seccomp"))

_ANSWER_S = 30.0
"""Seconds after which a fork server is given up; it answers in milliseconds."""

_END_S = 1.0


class ForkServer:
    """A process to fork from; it ends when this one does, even by SIGKILL, because its socket closes.

    Raises:
        OSError: it does not start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_S)
        try:
            with theirs, Path(os.devnull).open("wb") as nothing:
                job = {"socket": theirs.fileno()}
                self._process = start_interpreter(job, MODULES, "/", nothing.fileno(), (theirs.fileno(),))
        except OSError:
            self._socket.close()
            raise
        self.pid = self._process.pid
        try:
            self._answer()  # that it is ready
        except OSError:
            self.close()
            raise

    def request(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        """Have it do one thing.

        Raises:
            ConnectionError: it is gone, with all that it has forked.
            OSError: it does not answer.
        """
        with self._lock:
            if self.gone:
                raise ConnectionResetError("the fork server has ended")
            try:
                socket.send_fds(self._socket, [json.dumps(message).encode("ascii")], descriptors)
                return self._answer()
            except OSError:
                self._socket.close()  # a late answer would be taken for that of the next request
                raise

    def _answer(self) -> dict[str, Any]:
        data = self._socket.recv(MAX_REQUEST)
        if not data:
            raise ConnectionResetError("the fork server has ended")
        answer: dict[str, Any] = json.loads(data)
        return answer

    @property
    def gone(self) -> bool:
        """It has failed once and is of no more use."""
        return self._socket.fileno() < 0

    def forget(self) -> None:
        """Close what a forked process has inherited of its parent's fork server."""
        self._socket.close()
        self._process.returncode = 0  # no child of this process: nothing to wait for or to warn of

    def close(self) -> None:
        """End it, and with it all that it has forked."""
        self._socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class WarmProcess:
    """A process forked for one judgement.

    Args:
        server: to fork from.
        job: what it is to do.
        output: file descriptor where its stdout and stderr go.
        descriptors: file descriptors it keeps, by their name in the job.

    Raises:
        OSError: the fork server failed.
    """

    def __init__(self, server: ForkServer, job: dict[str, Any], output: int, descriptors: dict[str, int]) -> None:
        self._server = server
        with job_file(job) as file:
            reply = server.request({"start": list(descriptors)}, (file, output, *descriptors.values()))
        self.pid: int = reply["pid"]
        try:
            self._handle = os.pidfd_open(self.pid)
        except OSError:
            server.close()  # ends what has just been forked, which nothing else could end now
            raise

    def ended(self, patience_s: float) -> bool:
        """Wait a little for it to end by itself; it is not reaped yet."""
        waiting = select.poll()
        waiting.register(self._handle, select.POLLIN)
        return bool(waiting.poll(patience_s * 1000))

    def kill(self) -> None:
        """End it; locked as it is it has started no other process."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def reap(self) -> tuple[int, float]:
        """Wait for its end after `kill`, and give its wait status and its seconds of CPU time.

        Raises:
            OSError: the fork server has ended, and with it all that it forked.
        """
        os.close(self._handle)
        reply = self._server.request({"reap": self.pid})
        return reply["status"], reply["cpu_s"]


class _Own:
    """The fork server of this process, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.server: ForkServer | None = None

    def get(self) -> ForkServer:
        with self._lock:
            if self.server is None or self.server.gone:
                self._close()
                self.server = ForkServer()
            return self.server

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None

    def forget(self) -> None:
        """Leave the server to the parent, in a process forked from it; its lock may be held by a thread not forked."""
        if self.server is not None:
            self.server.forget()
        self._lock, self.server = threading.Lock(), None


_own = _Own()
atexit.register(_own.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own.forget)


def fork_server(layers: Collection[str]) -> ForkServer | None:
    """Give this process's fork server, where it is safe to use and can be started.

    Args:
        layers: protections that the forked processes will put on.
    """
    if not NEEDED_LAYERS.issubset(layers):
        return None
    try:
        return _own.get()
    except OSError:
        return None


def own_fork_server() -> ForkServer | None:
    """Give this process's fork server if it has one, without starting it."""
    return _own.server
