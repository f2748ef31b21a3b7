"""Where a sandboxed process begins, freshly started or forked: it locks itself, then does what its job says."""

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

from reflexion.sandbox import lockdown

REFUSED = 97
"""Exit code of a process that could not lock itself and therefore ran nothing."""

_PR_SET_PDEATHSIG = 1


def enter(job: dict[str, Any], parent: int) -> None:
    """Lock this process and run its job.

    Args:
        job: `layers`, `folder` and `limits` as `lockdown.lock` takes them, and `main`, the module whose `main` gets the
            job. Without `layers` the usable ones are found out and written to stdout.
        parent: process id of the parent; this process ends with it.
    """
    _end_with(parent)
    if "layers" not in job:
        sys.stdout.write(json.dumps(lockdown.usable_layers(job["folder"], job["limits"])))
        return
    try:
        lockdown.lock(job["layers"], job["folder"], job["limits"])
    except OSError as error:
        sys.stderr.write(f"the process could not be locked: {error}")
        sys.exit(REFUSED)
    importlib.import_module(f"reflexion.sandbox.{job['main']}").main(job)


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(REFUSED)
