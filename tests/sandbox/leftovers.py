"""What judgements leave behind."""

import os
from pathlib import Path

from reflexion.sandbox.fork_server import own_fork_server


def processes_in(folder: Path) -> list[str]:
    """Every process that works under a folder, or that this process or its fork server has started."""
    server = own_fork_server()
    parents = {os.getpid(), server.pid if server else 0}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where, parent = str((entry / "cwd").readlink()), (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        started = int(parent) in parents and int(entry.name) not in parents and where != str(Path.cwd())
        if started or where.startswith(str(folder)):
            found.append(f"{entry.name} {where}")
    return found
