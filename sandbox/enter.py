"""Where a sandboxed process begins, freshly started or forked: it locks itself, then does what its job says."""

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any, NoReturn

from reflexion.sandbox import lockdown
from reflexion.sandbox.packages import make_importable

REFUSED = 97
"""Exit code of a process that could not lock itself, or lacks a package, and therefore ran nothing."""

_PR_SET_PDEATHSIG = 1


def enter(job: dict[str, Any], parent: int) -> None:
    """Lock this process and run its job.

    Args:
        job: `layers`, `folder` and `limits` as `lockdown.lock` takes them, `packages` as `locate` gives them, and
            `main`, the module whose `main` gets the job. Without `layers` the usable ones are found out and written to
            stdout.
        parent: process id of the parent; this process ends with it.
    """
    _end_with(parent)
    if "layers" not in job:
        sys.stdout.write(json.dumps(lockdown.usable_layers(job["folder"], job["limits"])))
        return
    packages = job["packages"]
    try:
        readable = [folder for package in packages for folder in package["readable"]]
        lockdown.lock(job["layers"], job["folder"], job["limits"], readable)
    except OSError as error:
        _refuse(f"the process could not be locked: {error}")
    try:
        make_importable(packages)
    except (ImportError, MemoryError, OSError) as error:
        names = ", ".join(package["name"] for package in packages)
        _refuse(f"{names} cannot be imported with {job['limits']['memory_mb']} MiB: {type(error).__name__} {error}")
    importlib.import_module(f"reflexion.sandbox.{job['main']}").main(job)


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(REFUSED)


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(why)
    sys.exit(REFUSED)
