"""The first lines of a sandboxed process; the parent hands this file's text to a bare interpreter.

The interpreter sees neither the environment nor installed packages, so the modules it needs come as text in the job,
in the order in which they import each other.
"""

import json
import os
import sys
import types
from typing import Any


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
    if "socket" in job:
        sys.modules["reflexion.sandbox.forking"].serve(job["socket"])
    else:
        sys.modules["reflexion.sandbox.enter"].enter(job, job["parent"])


if __name__ == "__main__":
    _start(int(sys.argv[1]))
