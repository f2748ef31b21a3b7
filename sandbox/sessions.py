"""Ends a session: a process and all that it has started."""

import contextlib
import os
import signal
from pathlib import Path

_ROUNDS = 50
"""Times that processes are looked for that were started while the others were being killed."""


def kill_session(leader: int, *, alone: bool = False) -> None:
    """Kill a session's leader, which must not be reaped yet, and all that runs under it.

    Args:
        leader: process id; it is the leader's own until that is reaped.
        alone: it cannot have started anything, so nothing need be looked for.
    """
    for _ in range(_ROUNDS):
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
