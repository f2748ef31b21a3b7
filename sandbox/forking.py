"""The fork server's own process: it has imported what judging needs, and forks a locked child for each request.

It runs nothing that nobody trusts and is given no secret: a job comes as an open file that only the child reads. One
request at a time, a JSON object each, so that no other judgement's descriptors are open when it forks.
"""

import gc
import json
import os
import socket
from typing import Any

from reflexion.sandbox.enter import enter

MAX_REQUEST = 4096
"""Bytes of a request or a reply."""

MAX_DESCRIPTORS = 8


def serve(descriptor: int) -> None:
    """Answer requests until the other end of the socket is closed; in a child, come back when its job is done.

    Args:
        descriptor: of a socket that keeps messages apart. `{"start": [names of descriptors]}` with the job, the output
            and the named descriptors is answered with `{"pid": …}`; `{"reap": pid}` of a killed child with its
            `status` (as `os.wait4` gives it) and `cpu_s`.
    """
    server, here = socket.socket(fileno=descriptor), os.getpid()
    gc.collect()
    gc.freeze()
    os.write(descriptor, b"{}")
    while True:
        data, received, _, _ = socket.recv_fds(server, MAX_REQUEST, MAX_DESCRIPTORS)
        if not data:
            os._exit(0)
        request: dict[str, Any] = json.loads(data)
        if "reap" in request:
            _, status, usage = os.wait4(request["reap"], 0)
            reply = {"status": status, "cpu_s": usage.ru_utime + usage.ru_stime}
        else:
            pid = os.fork()
            if pid == 0:
                server.close()
                _become(request["start"], *received, parent=here)
                return
            reply = {"pid": pid}
        for handed_over in received:
            os.close(handed_over)
        server.send(json.dumps(reply).encode("ascii"))


def _become(names: list[str], job_file: int, output: int, *descriptors: int, parent: int) -> None:
    """Make of a forked process what `Child` would have started afresh."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)  # what is inherited is shared: flags and locks would outlive the process
    for standard, opened in ((0, nothing), (1, output), (2, output)):
        os.dup2(opened, standard)
    os.close(nothing)
    os.close(output)
    with os.fdopen(job_file, encoding="ascii") as file:
        job: dict[str, Any] = json.load(file)
    os.chdir(job["folder"])
    enter({**job, **dict(zip(names, descriptors, strict=True))}, parent)
