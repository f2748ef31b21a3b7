"""One sandboxed process: started cold or warm, and ended with everything it started."""

import contextlib
import os
import signal
import subprocess
from io import FileIO
from pathlib import Path
from typing import Any

from reflexion.sandbox.fork_server import ForkServer, WarmProcess
from reflexion.sandbox.records import Limits
from reflexion.sandbox.starting import ColdProcess


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
        job: what `enter` gets; `folder` and the descriptors are added here.
        modules: names out of `MODULES`, for a cold start.
        folder: where it runs; the only place it may write to.
        descriptors: file descriptors it keeps, by their name in the job.
        cannot_fork: it will be locked so that it cannot start processes, and none need be looked for.
        server: forks it, instead of a cold start.
    """

    def __init__(
        self,
        job: dict[str, Any],
        modules: tuple[str, ...],
        folder: Path,
        descriptors: dict[str, int],
        *,
        cannot_fork: bool = False,
        server: ForkServer | None = None,
    ) -> None:
        reader, writer = os.pipe()
        self.output = FileIO(reader)
        job = {**job, "folder": str(folder)}
        try:
            self._process = _forked(server, job, writer, descriptors) or ColdProcess(
                job, modules, writer, descriptors, cannot_fork=cannot_fork
            )
        except BaseException:
            self.output.close()
            raise
        finally:
            os.close(writer)
        self.exit_code: int | None = None
        """Minus the signal if one ended it; None until it is closed."""

        self.cpu_s = 0.0
        """Seconds of CPU time, known once it is closed."""

    def starved_s(self) -> float:
        """Seconds that its threads were ready to run and had no CPU; 0 where the platform does not tell."""
        waited = 0
        for statistics in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited = max(waited, int(statistics.read_text().split()[1]))
        return waited / 1e9

    def threads(self) -> int:
        """Count its threads; 0 where the platform does not tell."""
        try:  # a folder has a link for itself, its entry, and each folder in it
            return Path(f"/proc/{self._process.pid}/task").stat().st_nlink - 2
        except OSError:
            return 0

    def ended(self, patience_s: float) -> bool:
        """Wait a little for it to end by itself, so that its exit code is its own; it is not reaped yet."""
        return self._process.ended(patience_s)

    def close(self) -> None:
        """Kill it and whatever it started, and reap it; no process of it is left.

        Raises:
            OSError: its fork server has ended, so that nothing is known of its end.
        """
        if self.exit_code is not None:
            return
        self.exit_code = -signal.SIGKILL
        self.output.close()
        self._process.kill()
        status, self.cpu_s = self._process.reap()
        self.exit_code = os.waitstatus_to_exitcode(status)


def _forked(
    server: ForkServer | None, job: dict[str, Any], output: int, descriptors: dict[str, int]
) -> WarmProcess | None:
    if server is not None:
        # It may have been killed; the next judgement starts another. Whatever else fails, a process may have begun to
        # use the pipes, and no second one may be given them.
        with contextlib.suppress(ConnectionError):
            return WarmProcess(server, job, output, descriptors)
    return None
