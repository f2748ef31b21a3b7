"""Starts a bare interpreter that is given its modules as text."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from reflexion.sandbox.sessions import kill_session

MODULES = (
    *("syscalls", "lockdown", "packages", "enter", "arrays", "wire", "mirror", "objects", "peer", "candidate_main"),
    *("parsing", "rewrite", "collect", "outcome", "namespace", "pytest_shim", "tester_main", "forking"),
)
"""What a process can be given, each after those it imports; it sees no installed package."""

NEEDED_TO_LOCK = MODULES[: MODULES.index("enter") + 1]
NEEDED_BY_CANDIDATE = MODULES[: MODULES.index("candidate_main") + 1]
NEEDED_BY_TESTER = MODULES[: MODULES.index("tester_main") + 1]


@cache
def _source(module: str) -> str:
    return Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")


def _interpreter() -> str:
    """Find the interpreter itself: a virtual environment's is a shim, and names the environment's folder."""
    base = getattr(sys, "_base_executable", "") or sys.executable
    return os.path.realpath(base)


@contextmanager
def job_file(job: dict[str, Any]) -> Iterator[int]:
    """Write a job to a file without a name, to be read from its start."""
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(job).encode("ascii"))
        file.seek(0)
        yield file.fileno()


def start_interpreter(
    job: dict[str, Any], modules: tuple[str, ...], folder: str, output: int, descriptors: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    """Start an interpreter with an empty environment, its input closed, as leader of a session of its own.

    Args:
        job: what `boot` gets; `parent` and `modules` are added.
        modules: names out of `MODULES`.
        folder: where it runs.
        output: file descriptor where its stdout and stderr go.
        descriptors: file descriptors it keeps.
    """
    texts = [[f"reflexion.sandbox.{name}", _source(name)] for name in modules]
    with job_file({**job, "parent": os.getpid(), "modules": texts}) as file:
        return subprocess.Popen(  # noqa: S603 - running code nobody trusts is what this is for
            [_interpreter(), "-I", "-S", "-B", "-u", "-c", _source("boot"), str(file)],
            cwd=folder,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(file, *descriptors),
            start_new_session=True,
        )


class ColdProcess:
    """A process started for one judgement.

    Args:
        job: as for `start_interpreter`.
        modules: names out of `MODULES`.
        output: file descriptor where its stdout and stderr go.
        descriptors: file descriptors it keeps, by their name in the job.
        cannot_fork: it will be locked so that it cannot start processes, and none need be looked for.
    """

    def __init__(
        self,
        job: dict[str, Any],
        modules: tuple[str, ...],
        output: int,
        descriptors: dict[str, int],
        *,
        cannot_fork: bool,
    ) -> None:
        self._cannot_fork = cannot_fork
        kept = tuple(descriptors.values())
        self._process = start_interpreter({**job, **descriptors}, modules, job["folder"], output, kept)
        self.pid = self._process.pid

    def ended(self, patience_s: float) -> bool:
        """Wait a little for it to end by itself; it is not reaped yet."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            time.sleep(patience_s)
            return False
        until = time.monotonic() + patience_s
        while True:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)

    def kill(self) -> None:
        """End it and whatever it has started."""
        kill_session(self.pid, alone=self._cannot_fork)

    def reap(self) -> tuple[int, float]:
        """Wait for its end after `kill`, and give its wait status and its seconds of CPU time."""
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return status, usage.ru_utime + usage.ru_stime
