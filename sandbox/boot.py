"""The first lines of a sandboxed process; the parent hands this file's text to a bare interpreter.

The interpreter sees neither the environment nor installed packages, so the modules it needs come as text in the job,
in the order in which they import each other.
"""

import importlib.util
import json
import os
import sys
from typing import Any

REFUSED = 97
"""Exit code of a process that could not lock itself and therefore ran nothing."""


def _define(name: str, source: str) -> None:
    for package in ("reflexion", "reflexion.sandbox"):
        if package not in sys.modules:
            sys.modules[package] = importlib.util.module_from_spec(
                importlib.util.spec_from_loader(package, None, is_package=True)  # type: ignore[arg-type]
            )
    spec = importlib.util.spec_from_loader(name, None)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    exec(compile(source, name, "exec"), module.__dict__)  # noqa: S102


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
