"""Processes forked for each judgement: nothing passes from one to the next, and none outlives its parent."""

import asyncio
import errno
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reflexion.sandbox import Limits, available_layers, judge
from reflexion.sandbox.fork_server import fork_server, own_fork_server

pytestmark = pytest.mark.skipif(
    fork_server(available_layers()) is None, reason="needs Landlock and seccomp (Linux 5.13 or later)"
)

PATIENT = Limits(wall_s=40, cpu_s=20)
ADD = "def add(a, b): return a + b"
PROGRAM = """
import asyncio, os, sys
from reflexion.sandbox import Limits, judge
from reflexion.sandbox.fork_server import own_fork_server
async def main():
    verdict = await judge("def f(): return 1", "assert f() == 1", limits=Limits(wall_s=40, cpu_s=20))
    assert verdict.passed, verdict
    print(own_fork_server().pid, flush=True)
    if sys.argv[1] == "stay":
        await judge("import time\\ntime.sleep(600)", "assert f()", limits=Limits(wall_s=600))
asyncio.run(main())
"""


def gone(pid: int) -> bool:
    """Wait for a process's end."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(30_000))
    finally:
        os.close(handle)


def children_of(parent: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def test_one_server_serves_every_event_loop():
    pids = []
    for _ in range(2):
        assert asyncio.run(judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)).passed
        server = own_fork_server()
        assert server is not None
        pids.append(server.pid)
    assert pids[0] == pids[1]


def test_a_program_that_ends_takes_its_server_along_without_a_warning():
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", PROGRAM, "end"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert gone(int(ended.stdout))


def test_a_program_that_is_killed_takes_its_server_and_the_judged_code_along():
    with subprocess.Popen([sys.executable, "-c", PROGRAM, "stay"], stdout=subprocess.PIPE, text=True) as program:
        try:
            server = int(program.stdout.readline())
            judged = []
            while len(judged) < 2:
                judged = children_of(server)
        finally:
            program.kill()
    assert gone(server)
    assert all(gone(pid) for pid in judged)


async def test_a_killed_server_is_replaced():
    assert (await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)).passed
    before = own_fork_server()
    os.kill(before.pid, signal.SIGKILL)
    assert (await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)).passed
    assert (await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)).passed
    assert own_fork_server().pid != before.pid


async def test_a_forked_process_that_cannot_be_held_is_ended_and_no_verdict(monkeypatch):
    def full(pid: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    assert (await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)).passed
    server = own_fork_server()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", full)
        verdict = await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)
    assert verdict.state == "unavailable"
    assert "too many open files" in verdict.message
    assert gone(server.pid)
    assert (await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)).passed


async def test_a_server_that_is_killed_during_a_judgement_is_not_the_candidates_fault():
    assert (await judge(ADD, "assert add(1, 2) == 3", limits=PATIENT)).passed
    server = own_fork_server().pid
    running = asyncio.create_task(judge("import time\ntime.sleep(600)", "assert f()", limits=PATIENT))
    async with asyncio.timeout(60):
        while len(children_of(server)) < 2:  # noqa: ASYNC110 - what another process does sets no event
            await asyncio.sleep(0.01)
    os.kill(server, signal.SIGKILL)
    verdict = await running
    assert (verdict.state, verdict.passed) == ("unavailable", False)


def test_a_forked_process_has_a_server_of_its_own():
    program = """
import asyncio, os
from reflexion.sandbox import Limits, judge
from reflexion.sandbox.fork_server import own_fork_server
def judged():
    verdict = asyncio.run(judge("def f(): return 1", "assert f() == 1", limits=Limits(wall_s=40, cpu_s=20)))
    assert verdict.passed, verdict
    return own_fork_server().pid
first = judged()
child = os.fork()
if child == 0:
    assert own_fork_server() is None
    second = judged()
    os._exit(0 if second != first else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert judged() == first
print("fine")
"""
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (ended.stdout, ended.stderr) == ("fine\n", "")


async def test_nothing_of_one_judgement_is_there_in_the_next():
    code = """
import builtins, gc, os, random, sys
seen = [name for name in ("json", "builtins") if hasattr(sys.modules[name], "mark")]
seen += [entry for entry in (*os.environ, *sys.path, *os.listdir(".")) if "mark" in entry]
descriptors = []
for number in range(256):
    try:
        os.fstat(number)
        descriptors.append(number)
    except OSError: pass
import json
json.mark = builtins.mark = True
os.environ["mark"] = "x"
sys.path.insert(0, "/mark")
open("mark", "w").close()
def found(): return seen, len(descriptors)
import fcntl
flags, free = fcntl.fcntl(0, fcntl.F_GETFL), True
nothing = os.open("/dev/null", os.O_RDWR)
try: fcntl.flock(nothing, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError: free = False
fcntl.flock(nothing, fcntl.LOCK_UN)
fcntl.flock(0, fcntl.LOCK_EX)
fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_NONBLOCK)
def unmarked(): return free and not flags & os.O_NONBLOCK
def number(): return random.random()
"""
    tests = "assert found() == ([], 5)\nassert number() == -1\nassert unmarked()"
    verdicts = [await judge(code, tests, limits=PATIENT) for _ in range(3)]
    for verdict in verdicts:
        assert verdict.results[0].passed, verdict
        assert verdict.results[2].passed, verdict
    assert len({verdict.results[1].got for verdict in verdicts}) == 3
