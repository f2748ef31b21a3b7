"""Which protections this platform has, found out by putting them on in a process that does nothing else."""

import contextlib
import json
import logging
import tempfile
from functools import cache
from pathlib import Path

from reflexion.sandbox.child import Child, child_limits
from reflexion.sandbox.lockdown import LAYERS
from reflexion.sandbox.records import Limits
from reflexion.sandbox.starting import NEEDED_TO_LOCK

logger = logging.getLogger(__name__)

ALWAYS = ("process", "environment")
"""A process apart, and an empty environment with a bare interpreter: wherever processes can be started."""


class Unavailable(RuntimeError):  # noqa: N818 - it names the state of the sandbox, as `Verdict.state` does
    """The sandbox cannot start a process here."""


@cache
def available_layers() -> tuple[str, ...]:
    """Name the protections that judgements run under here; the answer is kept. Starts a process: not for an event loop.

    Raises:
        Unavailable: no process can be started or it cannot limit itself.
    """
    answer = b""
    try:
        with tempfile.TemporaryDirectory(prefix="reflexion-", ignore_cleanup_errors=True) as folder:
            limits = child_limits(Limits(), counts_processes=True)
            child = Child({"limits": limits}, NEEDED_TO_LOCK, Path(folder), {})
            with contextlib.closing(child):
                while more := child.output.read(65_536):
                    answer += more
        usable = json.loads(answer)
    except (OSError, AttributeError, ImportError, ValueError) as error:
        said = answer.decode("utf-8", "replace")[-500:]
        raise Unavailable(
            f"code cannot be run apart here ({error} {said}); unit tests need Linux or macOS, such as in a container"
        ) from error
    return (*ALWAYS, *usable)


def missing_layers() -> tuple[str, ...]:
    """Name the protections that this platform lacks.

    Raises:
        Unavailable: no process can be started.
    """
    available = available_layers()
    return tuple(layer for layer in (*ALWAYS, *LAYERS) if layer not in available)


def layers_for(limits: Limits) -> tuple[str, ...]:
    """Name the protections that a judgement is to run under; what is missing here is logged once for each process.

    Raises:
        Unavailable: no process can be started, or `limits` is strict and a protection is missing.
    """
    missing = ", ".join(missing_layers())
    if missing and limits.strict:
        raise Unavailable(
            f"this platform lacks protections ({missing}), and the sandbox is strict (`Limits(strict=True)`, "
            "REFLEXION_SANDBOX_STRICT); use Linux 5.13 or later on x86-64 or aarch64, without a container that forbids "
            "Landlock or seccomp"
        )
    if missing:
        _say_once(missing)
    return available_layers()


@cache
def _say_once(missing: str) -> None:
    logger.warning("code that nobody trusts runs here without these protections: %s (see docs/sandbox.md)", missing)
