"""Workers that die, stand still and end: every task has one result, and goes on where it was."""

import asyncio
import signal
import subprocess
import sys
import time

import psycopg
import pytest
from batch_bench import run, statuses, task

from reflexion.batch import run_batch
from reflexion.testing import Reply

TABLES = ("checkpoints", "checkpoint_writes", "checkpoint_blobs", "reflexion_ledger", "reflexion_fence")


def rows(url):
    """All that the runs have written."""
    with psycopg.connect(url) as connection:
        return {name: sorted(map(str, connection.execute(f"SELECT * FROM {name}").fetchall())) for name in TABLES}


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.slow)])
async def test_a_worker_that_is_lost_costs_the_requests_in_flight_and_no_more(fleet, bench, how):
    bench.server.hold("m")
    lost = fleet.worker(concurrency=2)
    options = {"out": bench.out, "concurrency": 12, "budget_tokens": 100_000, "keep_threads": True}
    batch = run_batch([task(n) for n in range(12)], fleet.engine(), **options)
    records = asyncio.create_task(run(batch))
    await bench.server.wait_for_async("m", 2, timeout_s=100)
    lost.kill() if how == "killed" else lost.stop()
    other = fleet.worker()
    bench.server.release("m")
    assert statuses(await records) == {f"t{n}": "passed" for n in range(12)}
    assert [record["id"] for record in bench.written()] == [f"t{n}" for n in range(12)]
    assert bench.server.count == 12 + 2
    progress = await batch.progress()
    assert (progress.spent.requests, progress.counts) == (14, {"passed": 12})
    if how == "stopped":
        before = rows(fleet.url)
        lost.wake()
        lost.wait_for("Lost", 2)
        assert rows(fleet.url) == before
        lost.terminate()
        assert lost.ended() == 0
    other.terminate()
    assert other.ended() == 0
    assert bench.server.count == 12 + 2


async def test_a_worker_that_is_to_end_finishes_its_step_and_hands_the_rest_to_another(fleet, bench):
    bench.replies[1] = "no"
    bench.server.hold("m")
    first = fleet.worker()
    records = asyncio.create_task(run(run_batch([task(1)], fleet.engine(max_attempts=2), out=bench.out)))
    await bench.server.wait_for_async("m", timeout_s=100)
    first.terminate()
    first.wait_for("hands back")
    bench.server.release("m")
    assert first.ended() == 0
    assert "Drained" in first.said
    bench.replies.clear()
    fleet.worker()
    (record,) = await records
    assert [attempt["answer"] for attempt in record.result["attempts"]] == ["no", "Answer: 1."]
    assert len(bench.server.requests_for("m")) == 2


async def test_a_worker_that_has_no_time_left_breaks_off_what_it_works_on(fleet, bench):
    bench.server.hold("m")
    first = fleet.worker("--drain", "0")
    records = asyncio.create_task(run(run_batch([task(1)], fleet.engine(), out=bench.out)))
    await bench.server.wait_for_async("m", timeout_s=100)
    first.terminate()
    assert first.ended() == 0
    fleet.worker()
    await bench.server.wait_for_async("m", 2, timeout_s=100)
    bench.server.release("m")
    assert statuses(await records) == {"t1": "passed"}


def reflexion_batch(fleet, bench) -> "subprocess.Popen[str]":
    """`reflexion batch`, as a process."""
    options = ["--out", str(bench.out), "--engine", "temporal", "--max-attempts", "1", "--no-memory"]
    command = [sys.executable, "-m", "reflexion.cli", "batch", str(bench.folder / "in.jsonl"), *options, "--model", "m"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=fleet.environment, **pipes)


def test_an_interrupted_command_leaves_nothing_at_work_and_goes_on(fleet, bench):
    bench.file(*(task(n) for n in range(6)))
    bench.server.hold("m")
    worker = fleet.worker()
    with reflexion_batch(fleet, bench) as command:
        try:
            bench.server.wait_for("m", 4, timeout_s=100)
            command.send_signal(signal.SIGINT)
            said, _ = command.communicate(timeout=100)
        finally:
            command.kill()
    assert command.returncode == 130, said
    assert worker.said.count("broken off") == 4
    bench.server.release("m")
    with reflexion_batch(fleet, bench) as command:
        said, _ = command.communicate(timeout=100)
    assert command.returncode == 0, said
    assert {record["status"] for record in bench.written()} == {"passed"}
    assert bench.server.count == 4 + 6


def test_a_worker_that_finds_no_temporal_says_so_in_one_line(fleet, closed_port):
    worker = fleet.worker("--address", f"127.0.0.1:{closed_port}")
    assert worker.ended() == 2
    (line,) = worker.said.splitlines()
    assert line.startswith(f"reflexion: Temporal at 127.0.0.1:{closed_port} cannot be reached")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_hundred_tasks_outlive_two_of_three_workers(fleet, bench, redis_url):
    per_s, tasks, budget = 20, 100, 100_000
    bench.server.default("m", lambda body: Reply(bench.reply(body), delay_s=0.047))
    fleet.variables = {"REFLEXION_REDIS_URL": redis_url, "REFLEXION_REQUESTS_PER_MINUTE": str(60 * per_s)}
    started = time.monotonic()
    killed, stopped, last = (fleet.worker() for _ in range(3))
    for worker in (killed, stopped, last):
        worker.wait_for("takes tasks")
    options = {"out": bench.out, "concurrency": 30, "budget_tokens": budget, "keep_threads": True}
    batch = run_batch([task(n) for n in range(tasks)], fleet.engine(), **options)
    records = asyncio.create_task(run(batch))
    await bench.server.wait_for_async("m", 15, timeout_s=100)
    killed.kill()
    await bench.server.wait_for_async("m", 40, timeout_s=100)
    stopped.stop()
    at_work = {line.split(": ")[1] for line in stopped.said.splitlines() if "'t" in line}
    assert statuses(await records) == {f"t{n}": "passed" for n in range(tasks)}
    assert [record["id"] for record in bench.written()] == [f"t{n}" for n in range(tasks)]
    before = rows(fleet.url)
    stopped.wake()
    for thread in at_work:
        stopped.wait_for(thread, 2)
    assert rows(fleet.url) == before
    progress = await batch.progress()
    assert progress.spent.tokens <= budget
    assert tasks <= bench.server.count <= tasks + 8
    arrived = [request.arrived - started for request in bench.server.requests_for("m")]
    assert [n for n, at in enumerate(arrived, 1) if n > per_s * at + per_s] == []
