"""The process that holds the candidate: loads it and does what the tests ask of it, one request at a time.

It never sees the tests. Whatever the candidate does in here, it can only change what it answers.
"""

import linecache
import sys
import traceback
import types
from typing import Any

from reflexion.sandbox import wire
from reflexion.sandbox.objects import CANDIDATE_FILE
from reflexion.sandbox.peer import Peer


def _allow(value: Any, operation: str, args: tuple[Any, ...]) -> None:
    """Let the tests do anything: nothing in this process is worth protecting from them."""


def _own_lines(error: BaseException) -> str:
    """Format a traceback without the frames of this process's own machinery."""
    shown = traceback.TracebackException.from_exception(error, limit=-8, max_group_depth=2)
    node: traceback.TracebackException | None = shown
    while node is not None:
        node.stack = traceback.StackSummary.from_list([f for f in node.stack if f.filename == CANDIDATE_FILE])
        node = node.__cause__ or node.__context__
    return "".join(shown.format())[-2000:]


def _load(source: str) -> types.ModuleType:
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module
    linecache.cache[CANDIDATE_FILE] = (len(source), None, source.splitlines(keepends=True), CANDIDATE_FILE)
    exec(compile(source, CANDIDATE_FILE, "exec"), module.__dict__)  # noqa: S102
    return module


def main(job: dict[str, Any]) -> None:
    """Serve a candidate until the tests are done.

    Args:
        job: `candidate` (source text), `reader` and `writer` (file descriptors).
    """
    reader, writer = job["reader"], job["writer"]
    sys.argv = ["candidate"]
    wire.send(writer, "ready")
    try:
        module = _load(job["candidate"])
    except BaseException as error:  # noqa: BLE001 - SystemExit while loading is a failure to load like any other
        try:
            message = _own_lines(error)
        except BaseException:  # noqa: BLE001 - an exception may be built to break whoever shows it
            message = type(error).__name__
        wire.send(writer, {"failed": message})
        return
    names = {name: value for name, value in vars(module).items() if isinstance(name, str) and not name.startswith("__")}
    modules = [name for name, value in names.items() if isinstance(value, types.ModuleType) and value.__name__ == name]
    peer = Peer(reader, writer, _allow, trusting=True)
    peer.objects.number(module)
    wire.send(writer, {"names": sorted(names), "modules": modules})
    try:
        peer.serve()
    except wire.PeerGone:
        return
