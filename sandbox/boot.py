"""The first lines of a sandboxed process; the parent hands this file's text to a bare interpreter.

The interpreter sees neither the environment nor installed packages, so the modules it needs come as text in the job,
in the order in which they import each other.
"""

import json
import os
import sys
import types
from typing import Any

REFUSED = 97
"""Exit code of a process that could not lock itself and therefore ran nothing."""


def _define(name: str, source: str) -> None:
    for package in ("reflexion", "reflexion.sandbox"):
        sys.modules.setdefault(package, types.ModuleType(package)).__path__ = []
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)  # noqa: S102
    package, _, last = name.rpartition(".")
    setattr(sys.modules[package], last, module)


def _start(descriptor: int) -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="surrogatepass") as file:
        job: dict[str, Any] = json.load(file)
    for name, source in job.pop("modules"):
        _define(name, source)
    lockdown = sys.modules["reflexion.sandbox.lockdown"]
    if "layers" not in job:
        sys.stdout.write(json.dumps(lockdown.usable_layers(job["folder"], job["limits"])))
        return
    main = sys.modules[f"reflexion.sandbox.{job['main']}"]
    try:
        lockdown.lock(job["layers"], job["folder"], job["limits"])
    except OSError as error:
        sys.stderr.write(f"the process could not be locked: {error}")
        sys.exit(REFUSED)
    main.main(job)


if __name__ == "__main__":
    _start(int(sys.argv[1]))
