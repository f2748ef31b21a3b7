"""A batch in a process of its own, which the tests kill; see test_batch_resume.py.

The processes are forked from one that has imported everything already: importing takes longer than the work.
"""

import asyncio
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import batch_bench
import langchain_openai  # noqa: F401 - here for the fork server

import reflexion.memory.sqlite  # noqa: F401


class BatchChild:
    """The process; what it says at its end is a list of records' ids and statuses."""

    def __init__(self, base_url: str, folder: Path, options: dict[str, Any]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["batch_child"])
        self._ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=run, args=(theirs, base_url, folder, options))
        # Before Python 3.13 the fork server ignores the path it is given, and with it what it is to import.
        with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(sys.path)}):
            self._process.start()
        theirs.close()

    def says(self) -> Any:
        """What it says at its end; raises EOFError where it ends without a word."""
        if not self._ours.poll(200):
            raise TimeoutError("the child says nothing")
        return self._ours.recv()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


class _Elsewhere:
    """The server as a child knows it."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def default(self, *_: Any) -> None:
        """Its scripts are the parent's."""


def run(connection: Connection, base_url: str, folder: Path, options: dict[str, Any]) -> None:
    async def work() -> list[tuple[str, str]]:
        bench = batch_bench.BatchBench(_Elsewhere(base_url), folder)  # type: ignore[arg-type]
        async with bench.agent(max_attempts=2) as agent:
            batch = agent.run_batch(folder / "in.jsonl", out=bench.out, **options)
            return [(record.id, record.status) for record in await batch_bench.run(batch)]

    connection.send(asyncio.run(work()))
