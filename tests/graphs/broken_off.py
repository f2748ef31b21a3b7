"""A run in a process of its own, which the tests kill or stop; see test_resume.py.

The processes are forked from one that has imported everything already: importing takes longer than the run.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import langchain_openai  # noqa: F401 - here for the fork server

import reflexion.memory.postgres
import reflexion.memory.sqlite  # noqa: F401
from reflexion.graphs import Fenced, Settings, open_reflexion
from reflexion.memory import Memory, ThreadBusy
from reflexion.models import ConnectionSettings, trace_client
from reflexion.nodes import turn

TASK = "Sum a list."
CODE = "Write double(n)."


class Child:
    """The process; what it says is `held`, `busy`, `fenced`, or its result."""

    def __init__(self, *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["broken_off"])
        self._ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=run, args=(theirs, *arguments))
        # Before Python 3.13 the fork server ignores the path it is given, and with it what it is to import.
        with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(sys.path)}):
            self._process.start()
        theirs.close()

    def says(self) -> Any:
        """What it says next; raises EOFError where it ends without a word."""
        if not self._ours.poll(100):
            raise TimeoutError("the child says nothing")
        return self._ours.recv()

    def stop(self) -> None:
        """Let it stand still, as if its machine did, until it is woken."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def run(connection: Connection, *arguments: Any) -> None:
    asyncio.run(work(connection.send, *arguments))


async def work(say: Any, base_url: str, database: str, thread: str, slow: str, how: str) -> None:
    models = {f"{role}_model": f"{role}-m" for role in ("actor", "reflector", "planner")}
    code = how == "code"
    settings = Settings(
        **models,
        evaluator_model="critic-m",
        max_attempts=2,
        threshold=1,
        generate_tests=code,
        test_timeout_s=60,
        memory_explore=0,
        memory_control=0,
    )
    connection = ConnectionSettings(base_url=base_url, api_key="sk-very-secret-123", max_retries=0)
    if slow.startswith("after "):
        hold_after(slow.removeprefix("after "), say)
    elif slow:
        hold(slow, say)
    shared = how == "worker"
    async with open_reflexion(settings, connection=connection, database_url=database, shared=shared) as agent:
        task = None if how == "none" else CODE if code else TASK
        try:
            result = await agent.run(task, thread=thread, wait_s=100 if how == "wait" else 0)
        except ThreadBusy:
            say("busy")
        except Fenced:
            say("fenced")
        else:
            say(result.as_json())


def hold(method: str, say: Any) -> None:
    """Let a method of the memory say that it was called, and never return."""

    async def held(*_: Any, **__: Any) -> None:
        say("held")
        await asyncio.Event().wait()

    setattr(Memory, method, held)


def hold_after(node: str, say: Any) -> None:
    """Say that a node has done its work, before anything of it is written down, and stand still."""

    def held(name: str, *_: Any) -> None:
        if name == node:
            say("held")
            threading.Event().wait()

    turn.trace_step = held


if __name__ == "__main__":
    trace_client.EXIT_S = 60
    asyncio.run(work(print, *sys.argv[1:]))
