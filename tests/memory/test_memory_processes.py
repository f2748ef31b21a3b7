"""Several processes and one memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from reflexion.memory import Episode, Evidence, Memory, make_lesson, open_persistence, task_key

PROGRAM = Path(__file__).parent / "counting.py"
RUNS = 15


@pytest.fixture
def start():
    """Start processes that all wait for a word before they begin."""
    running = []

    def begin(url: str, key: str, name: str) -> subprocess.Popen:
        command = [sys.executable, str(PROGRAM), url, key, name, str(RUNS)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


async def test_two_processes_that_count_the_same_lesson_at_once_lose_nothing(durable_url, start):
    lesson = make_lesson("Sum a list.", "Check the empty list first.", 1.0)
    why = Evidence(thread_id="t", attempt=1, text=lesson["text"], evaluator="e", verdict="", confirmed=False)
    first = Episode(
        run_id="first", thread_id="t", task="Sum a list.", task_key=task_key("Sum a list."), scores=[0.0],
        first_passed=False, passed=False, stop_reason="max_attempts", cost_usd=None, lessons_used=[],
        lessons_withheld=[], lessons_learned=[], at=0.0,
    )  # fmt: skip
    async with open_persistence(durable_url) as persistence:
        await Memory(persistence.store).remember(first, [(lesson, why)])
    both = [start(durable_url, lesson["id"], name) for name in ("one", "two")]
    assert [process.stdout.readline() for process in both] == ["ready\n", "ready\n"]
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    async with open_persistence(durable_url) as persistence:
        (kept,) = await Memory(persistence.store).lessons()
        episodes = await Memory(persistence.store).episodes()
    assert (kept.used, kept.helped, kept.seen, kept.state) == (2 * RUNS, 2 * RUNS, 1, "active")
    assert len(episodes) == 2 * RUNS + 1
