"""Runs a candidate's process and the tests' process together until the verdict, the limits or a cancellation."""

import contextlib
import json
import os
import secrets
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from reflexion.sandbox.capture import HeadAndTail
from reflexion.sandbox.child import Child, child_limits
from reflexion.sandbox.disk import folder_of_a_run, holds_more_than
from reflexion.sandbox.fork_server import ForkServer, fork_server
from reflexion.sandbox.packages import locate
from reflexion.sandbox.records import Limits
from reflexion.sandbox.starting import NEEDED_BY_CANDIDATE, NEEDED_BY_TESTER

_FLOOD = 256
"""Output beyond this many times what is kept ends the run: reading on would only cost time."""

_MOST_VERDICT_BYTES = 32 << 20

_LOOK_UP_S = 0.1
"""Seconds between looks at whether the run is to be stopped."""

_LOOK_AT_DISK_S = 0.5
_THREADS = 1000
"""Threads that a process may have: the machine runs out of them long before the process is out of memory."""

_FILES = 8
"""Full files that the folder of a run may hold."""

_GRACE_S = 0.3
"""Seconds for a process to end by itself once the other is gone, so that its exit code tells why."""


@dataclass(slots=True)
class Ending:
    """How a pair of processes ended, before anybody has drawn a conclusion."""

    verdict: dict[str, Any] | None = None
    """The last line with the right token that closes the run: `state`, `message`, `results`."""

    started: bool = False
    """The tests' process was locked and got as far as the tests."""

    under_way: int | None = None
    """Number of the test that was started last."""

    wall_timeout: bool = False
    cancelled: bool = False
    flooded: str = ""
    """What it wrote without end, for which it was killed; empty if it did not."""

    output: str = ""
    tester_output: str = ""
    exit_codes: tuple[int | None, int | None] = (None, None)
    """Of the candidate's and the tests' process; minus the signal that ended it."""

    cpu_s: tuple[float, float] = (0.0, 0.0)
    starved_s: float = 0.0
    """Seconds that a process was ready to run and had no CPU."""

    wall_s: float = 0.0


@dataclass(slots=True)
class _VerdictLines:
    token: str
    ending: Ending
    seen: int = 0
    """Bytes so far."""

    _pending: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        self.seen += len(data)
        self._pending += data
        if b"\n" not in data:
            return
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            token, _, text = line.partition(b" ")
            if token == self.token.encode():  # else the tests have written there, whatever it is
                self._note(json.loads(text))

    def _note(self, message: dict[str, Any]) -> None:
        self.ending.started = True
        if "now" in message:
            self.ending.under_way = message["now"]
        else:
            self.ending.verdict = message


def run_pair(
    candidate: str,
    tests: str,
    entry: str,
    *,
    limits: Limits,
    layers: tuple[str, ...],
    stop: threading.Event,
    warm: bool = True,
) -> Ending:
    """Judge in two processes; blocks until both are gone.

    Args:
        candidate: source of the code under test.
        tests: source of the tests.
        entry: what `candidate` means in the tests; may be empty.
        limits: for each process, and the wall clock for both.
        layers: protections that must be put on.
        stop: set by another thread to end the run.
        warm: fork the processes from one that has imported everything, where that is safe.

    Raises:
        OSError: a process could not be started.
        ModuleNotFoundError: a package that is to be importable is not installed.
    """
    # What packages import, threads among it, need not survive a fork.
    server = fork_server(layers) if warm and not limits.packages else None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(folder_of_a_run())
        started = time.monotonic()
        pair = _Pair(candidate, tests, entry, limits, layers, Path(folder), server, stack)
        ending = Ending()
        pair.watch(ending, started + limits.wall_s, stop)
        pair.finish(ending)
        ending.wall_s = time.monotonic() - started
    return ending


class _Pair:
    def __init__(
        self,
        candidate: str,
        tests: str,
        entry: str,
        limits: Limits,
        layers: tuple[str, ...],
        folder: Path,
        server: ForkServer | None,
        stack: contextlib.ExitStack,
    ) -> None:
        can_fork = "seccomp" not in layers
        common = {
            "layers": layers,
            "limits": child_limits(limits, counts_processes=can_fork),
            "packages": locate(limits.packages),
        }
        start = partial(Child, folder=folder, cannot_fork=not can_fork, server=server)
        self._token = secrets.token_hex(16)
        self._limits = limits
        self._folder = str(folder)
        verdict, verdict_writer = _pipe(stack)
        self._verdict = verdict
        with contextlib.ExitStack() as handed_over:
            (asked, ask), (answered, answer) = _pipe(handed_over), _pipe(handed_over)
            self._candidate = start(
                {**common, "main": "candidate_main", "candidate": candidate},
                NEEDED_BY_CANDIDATE,
                descriptors={"reader": asked.fileno(), "writer": answer.fileno()},
            )
            stack.callback(self._candidate.close)
            self._tester = start(
                {**common, "main": "tester_main", "token": self._token, "tests": tests, "entry": entry},
                NEEDED_BY_TESTER,
                descriptors={
                    "reader": answered.fileno(),
                    "writer": ask.fileno(),
                    "verdict": verdict_writer.fileno(),
                },
            )
            stack.callback(self._tester.close)
        verdict_writer.close()
        now = time.monotonic()
        self._look_at_threads, self._look_at_disk = now + _LOOK_UP_S, now + _LOOK_AT_DISK_S
        self._output = HeadAndTail(limits.output_bytes)
        self._tester_output = HeadAndTail(4096)

    def watch(self, ending: Ending, deadline: float, stop: threading.Event) -> None:
        """Read what comes until the tests' process is done, and a little longer for the candidate's last output."""
        lines = _VerdictLines(self._token, ending)
        feeds: dict[int, Callable[[bytes], None]] = {
            self._verdict.fileno(): lines.feed,
            self._candidate.output.fileno(): self._output.feed,
            self._tester.output.fileno(): self._tester_output.feed,
        }
        with selectors.DefaultSelector() as selector:
            for descriptor, feed in feeds.items():
                selector.register(descriptor, selectors.EVENT_READ, feed)
            while selector.get_map():
                left = deadline - time.monotonic()
                ending.wall_timeout = left <= 0 and ending.verdict is None
                ending.cancelled = stop.is_set()
                ending.flooded = self._flooded(lines.seen)
                if left <= 0 or ending.cancelled or ending.flooded:
                    return
                for key, _ in selector.select(min(left, _LOOK_UP_S)):
                    data = os.read(key.fd, 65_536)
                    key.data(data)
                    if not data:
                        selector.unregister(key.fd)
                        if key.fd == self._verdict.fileno():
                            deadline = min(deadline, time.monotonic() + _GRACE_S)

    def _flooded(self, verdict_bytes: int) -> str:
        if self._output.seen > self._limits.output_bytes * _FLOOD:
            return "it printed without end"
        if verdict_bytes > _MOST_VERDICT_BYTES:
            return "the tests wrote without end where only their verdict belongs"
        now = time.monotonic()
        if now > self._look_at_threads:
            self._look_at_threads = now + _LOOK_UP_S
            if max(self._candidate.threads(), self._tester.threads()) > _THREADS:
                return "it started threads without end"
        if now > self._look_at_disk:
            self._look_at_disk = now + _LOOK_AT_DISK_S
            if holds_more_than(self._folder, _FILES * self._limits.file_mb << 20):
                return "it filled its folder"
        return ""

    def finish(self, ending: Ending) -> None:
        """End both processes and note what they leave behind."""
        children = (self._candidate, self._tester)
        ending.starved_s = max(child.starved_s() for child in children)
        if ending.verdict is None or ending.verdict["state"] != "ran":
            # A process that the CPU limit kills has closed its pipes a moment before its end can be seen.
            for child in children:
                child.ended(0 if ending.wall_timeout or ending.flooded or ending.cancelled else _GRACE_S)
        for child in children:
            child.close()
        ending.output, ending.tester_output = self._output.text(), self._tester_output.text()
        ending.exit_codes = (self._candidate.exit_code, self._tester.exit_code)
        ending.cpu_s = (self._candidate.cpu_s, self._tester.cpu_s)


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    reader, writer = os.pipe()
    return stack.enter_context(FileIO(reader, "r")), stack.enter_context(FileIO(writer, "w"))
