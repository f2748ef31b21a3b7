"""What attacks in a sandbox could harm: a file, a process, sockets, all made to be attacked."""

import contextlib
import os
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox_escapes import PRELUDE

from reflexion.sandbox.fork_server import own_fork_server

ESCAPED = "ESCAPED"
MOST_OUTPUT = 1 << 20
"""Bytes of output that a judge may take in; more is a flood."""


class World:
    """Things to attack, and a look at whether they are unharmed."""

    def __enter__(self) -> Self:
        self.token = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="canary-"))
        self.canary = self.folder / "canary"
        self.canary.write_text(f"{ESCAPED} {self.token}")
        self.canary.chmod(0o640)
        self._before = self._state()
        self._stack = contextlib.ExitStack()
        wait = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
        self.victim = subprocess.Popen(wait, env={"CANARY": self.token}, stdin=subprocess.PIPE, start_new_session=True)
        self._limits = resource.prlimit(self.victim.pid, resource.RLIMIT_NOFILE)
        self._children = set(_children())
        self._sockets = {
            "tcp": self._bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": self._bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "unix": self._bound(socket.AF_UNIX, socket.SOCK_STREAM, str(self.folder / "socket")),
            "abstract": self._bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.token}"),
            "datagrams": self._bound(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{self.token}-datagrams"),
        }
        self._before = self._state()
        return self

    def _bound(self, family: int, kind: int, address: str | tuple[str, int]) -> socket.socket:
        made = self._stack.enter_context(socket.socket(family, kind))
        made.bind(address)
        made.setblocking(False)
        if kind == socket.SOCK_STREAM:
            made.listen()
        return made

    def _state(self) -> object:
        kept = self.canary.stat()
        return (
            self.canary.read_text(),
            kept.st_mode,
            kept.st_mtime_ns,
            sorted(entry.name for entry in self.folder.iterdir()),
        )

    def source(self, code: str) -> str:
        """An escape's code with what it is to know of this world."""
        names = {name: made.getsockname() for name, made in self._sockets.items()}
        known = {
            **{name: at[1] if isinstance(at, tuple) else at for name, at in names.items()},
            "token": self.token,
            "canary": str(self.canary),
            "folder": str(self.folder),
            "victim": self.victim.pid,
        }
        return f"W = {known!r}\n{PRELUDE}\n{code}\n"

    def harm(self) -> list[str]:
        """Say what was harmed; empty for nothing."""
        found = []
        if self.victim.poll() is not None:
            found.append("the process was killed")
        elif resource.prlimit(self.victim.pid, resource.RLIMIT_NOFILE) != self._limits:
            found.append("the process was limited")
        try:
            if self._state() != self._before:
                found.append("the file was changed")
        except OSError:
            found.append("the file is gone")
        for name, made in self._sockets.items():
            with contextlib.suppress(BlockingIOError):
                if made.type == socket.SOCK_STREAM:
                    made.accept()[0].close()
                else:
                    made.recv(1)
                found.append(f"{name} was reached")
        left = [child for child in _children() if child not in self._children]
        return found + [f"process {child} was left behind" for child in left]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self.victim.kill()
        self.victim.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)
        for child in _children():
            if child not in self._children:  # only those that the attack has started
                with contextlib.suppress(OSError):
                    os.kill(child, 9)
                    os.waitpid(child, 0)


def _children() -> list[int]:
    """List the processes under this one and its fork server; zombies are no processes any more."""
    server = own_fork_server()
    parents = {os.getpid(), server.pid if server else os.getpid()}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(parent) in parents and state != "Z" and int(entry.name) not in parents:
                found.append(int(entry.name))
    return found
