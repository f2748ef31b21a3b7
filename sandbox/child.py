"""Starts one bare interpreter that locks itself, and ends it with everything it started."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from reflexion.sandbox.records import Limits

MODULES = (
    *("syscalls", "lockdown", "wire", "mirror", "objects", "peer", "candidate_main"),
    *("parsing", "rewrite", "collect", "outcome", "namespace", "pytest_shim", "tester_main"),
)
"""What a child is given, each after those it imports; a child sees no installed package."""

NEEDED_BY_CANDIDATE = MODULES[: MODULES.index("candidate_main") + 1]

_KILL_ROUNDS = 50
"""Times that processes are looked for that were started while the others were being killed."""


@cache
def _source(module: str) -> str:
    return Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")


def _interpreter() -> str:
    """Find the interpreter itself: a virtual environment's is a shim, and names the environment's folder."""
    base = getattr(sys, "_base_executable", "") or sys.executable
    return os.path.realpath(base)


def _tasks_of_this_user() -> int:
    """Count the processes and threads that the process limit counts against this user."""
    user, count = os.getuid(), 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == user:
                count += sum(1 for _ in (entry / "task").iterdir())
    if count == 0:
        listed = subprocess.run(["ps", "-x", "-o", "pid="], capture_output=True, check=False)  # noqa: S607
        count = len(listed.stdout.splitlines())
    return count


def child_limits(limits: Limits, *, counts_processes: bool) -> dict[str, int]:
    """Give the limits as a child takes them, in MiB, seconds and tasks."""
    return {
        "memory_mb": limits.memory_mb,
        "cpu_s": max(1, -int(-limits.cpu_s // 1)),
        "file_mb": limits.file_mb,
        "tasks": limits.processes + (_tasks_of_this_user() if counts_processes else 0),
    }


class Child:
    """One sandboxed process, leader of all it may start, with an empty environment and its input closed.

    Args:
        job: what `boot` gets; `modules` is added here.
        modules: names out of `MODULES`.
        folder: where it runs; the only place it may write to.
        descriptors: file descriptors it keeps.
        cannot_fork: it will be locked so that it cannot start processes, and none need be looked for.
    """

    def __init__(
        self,
        job: dict[str, Any],
        modules: tuple[str, ...],
        folder: Path,
        descriptors: tuple[int, ...] = (),
        *,
        cannot_fork: bool = False,
    ) -> None:
        self._cannot_fork = cannot_fork
        modules_with_text = [[f"reflexion.sandbox.{name}", _source(name)] for name in modules]
        with tempfile.TemporaryFile() as file:
            text = json.dumps({**job, "folder": str(folder), "modules": modules_with_text})
            file.write(text.encode("ascii"))
            file.seek(0)
            self._process = subprocess.Popen(  # noqa: S603 - running code nobody trusts is what this is for
                [_interpreter(), "-I", "-S", "-B", "-u", "-c", _source("boot"), str(file.fileno())],
                cwd=folder,
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(file.fileno(), *descriptors),
                start_new_session=True,
                bufsize=0,
            )
        assert self._process.stdout is not None
        self.output = self._process.stdout
        self.cpu_s = 0.0
        """Seconds of CPU time, known once it has ended."""

    @property
    def exit_code(self) -> int | None:
        """The exit code, minus the signal if one ended it; None while it runs."""
        return self._process.returncode

    def starved_s(self) -> float:
        """Seconds that its threads were ready to run and had no CPU; 0 where the platform does not tell."""
        waited = 0
        for statistics in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited = max(waited, int(statistics.read_text().split()[1]))
        return waited / 1e9

    def ended(self, patience_s: float) -> bool:
        """Wait a little for it to end by itself, so that its exit code is its own; it is not reaped yet."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            time.sleep(patience_s)
            return False
        until = time.monotonic() + patience_s
        while True:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)

    def close(self) -> None:
        """Kill it and whatever it started, and reap it; no process of it is left."""
        if self._process.returncode is not None:
            return
        pid = self._process.pid  # not reaped yet, so the number is still its own
        kill_session(pid, alone=self._cannot_fork)
        _, status, usage = os.wait4(pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.output.close()


def kill_session(leader: int, *, alone: bool = False) -> None:
    """Kill a session's leader, which must not be reaped yet, and all that runs under it.

    Args:
        leader: process id.
        alone: it cannot have started anything, so nothing need be looked for.
    """
    for _ in range(_KILL_ROUNDS):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        members = [] if alone else _led_by(leader)
        for member in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        if not members:
            break


def _led_by(leader: int) -> list[int]:
    """List the living processes under a leader, also those that moved to a process group of their own."""
    members = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, _, _, its_leader = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(its_leader) == leader and state != "Z" and int(entry.name) != leader:
                members.append(int(entry.name))
    return members
