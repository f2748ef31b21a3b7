"""Runs a program of the user's in a fresh folder, and ends it with all that it started."""

import asyncio
import contextlib
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reflexion.sandbox.capture import HeadAndTail
from reflexion.sandbox.gate import gate
from reflexion.sandbox.sessions import kill_session

T = TypeVar("T")

OUTPUT_BYTES = 4 << 20
"""Bytes of each of the two outputs that are kept, the first and the last half."""

_LOOK_UP_S = 0.05
"""Seconds between looks at whether the program has ended or is to be ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a program came to."""

    exit_code: int
    """Minus the signal where one ended it."""

    stdout: str
    """Valid Unicode, with a note where the middle was left out."""

    stderr: str
    timed_out: bool = False
    """It was killed at its time limit."""

    @property
    def output(self) -> str:
        """All that it printed, for people."""
        return "\n".join(part for part in (self.stdout.strip(), self.stderr.strip()) if part)


def run(
    argv: Sequence[str], folder: Path, *, env: Mapping[str, str], timeout_s: float, stop: threading.Event
) -> Finished:
    """Run a program; blocks until it and everything that it started are gone.

    It leads a session of its own, reads nothing, and sees no variable but `PATH` and those of `env`.

    Args:
        argv: the program and its arguments; no shell is involved.
        folder: where it runs.
        env: further variables.
        timeout_s: seconds after which it is killed.
        stop: set by another thread to kill it earlier.

    Raises:
        OSError: it could not be started, or not be ended again with all that it starts, as on Windows.
    """
    if os.name != "posix":
        raise OSError(f"commands run on Linux and macOS, not on {os.name}")
    process = subprocess.Popen(  # noqa: S603 - a program that the user named
        list(argv),
        cwd=folder,
        env={"PATH": os.environ.get("PATH", os.defpath), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    kept = {process.stdout.fileno(): HeadAndTail(OUTPUT_BYTES), process.stderr.fileno(): HeadAndTail(OUTPUT_BYTES)}
    with process.stdout, process.stderr:
        try:
            timed_out = not _watch(process, kept, time.monotonic() + timeout_s, stop)
        finally:
            kill_session(process.pid)  # its number is its own until it is reaped
            process.wait()
        stdout, stderr = (output.text() for output in kept.values())
    return Finished(exit_code=process.returncode, stdout=stdout, stderr=stderr, timed_out=timed_out)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has, without reaping it where that can be told."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _watch(
    process: subprocess.Popen[bytes], kept: Mapping[int, HeadAndTail], deadline: float, stop: threading.Event
) -> bool:
    """Read what it prints until it ends; False where its time is over. What it leaves running does not count."""
    with selectors.DefaultSelector() as selector:
        for descriptor in kept:
            selector.register(descriptor, selectors.EVENT_READ)
        while not stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            ended = _has_ended(process)
            ready = selector.select(0 if ended else min(left, _LOOK_UP_S))
            for key, _ in ready:
                data = os.read(key.fd, 65_536)
                kept[key.fd].feed(data)
                if not data:
                    selector.unregister(key.fd)
            if ended and not ready:
                return True
    return True


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """Let a thread work, as many at once as there are CPUs; when cancelled, tell it to stop and wait until it has."""
    stop = threading.Event()
    async with gate().shared():
        running = asyncio.ensure_future(asyncio.to_thread(work, stop))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            with contextlib.suppress(Exception):
                await running
            raise
