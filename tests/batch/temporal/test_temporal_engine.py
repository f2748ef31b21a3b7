"""Batches on Temporal, over a real server: broken off, gone on with, paused, and what Temporal is told."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from batch_bench import number_in, run, statuses, task
from fleet import SECRET, Fleet, connected
from temporalio.client import WorkflowExecutionStatus

from reflexion.batch import BatchError, run_batch
from reflexion.batch.temporal import TemporalEngine
from reflexion.batch.temporal.engine import fairness_key, priority_key
from reflexion.graphs import ConfigurationError, Settings
from reflexion.graphs.installation import read_installation
from reflexion.memory import DatabaseError

CLIENT = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from batch_bench import run, task
from fleet import Fleet
from reflexion.batch import run_batch

base_url, address, url, queue, out = sys.argv[1:]
fleet = Fleet(SimpleNamespace(server=SimpleNamespace(base_url=base_url)), address, url, queue)
asyncio.run(run(run_batch([task(n) for n in range(4)], fleet.engine(), out=out)))
"""


def client_process(fleet: Fleet) -> "subprocess.Popen[bytes]":
    """Four tasks in a process of its own."""
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {here!r}\n{CLIENT}"]
    return subprocess.Popen(
        [*command, fleet.bench.server.base_url, fleet.address, fleet.url, fleet.queue, str(fleet.bench.out)]
    )


async def workflows(fleet: Fleet, status: WorkflowExecutionStatus) -> list[str]:
    """The ids of this test's workflows in a state. The list lags behind; each is asked itself."""
    client = await connected(fleet.address)
    query = f"TaskQueue = '{fleet.queue}'"
    found = [entry.id async for entry in client.list_workflows(query)]
    states = [(await client.get_workflow_handle(name).describe()).status for name in found]
    return [name for name, state in zip(found, states, strict=True) if state == status]


async def until(condition) -> None:
    """Wait for what happens elsewhere."""
    async with asyncio.timeout(100):
        while not await condition():  # noqa: ASYNC110 - no event of ours
            await asyncio.sleep(0.05)


async def test_a_batch_that_is_broken_off_leaves_nothing_at_work_and_goes_on(fleet, bench):
    tasks = [task(n) for n in range(6)]
    bench.server.hold("m")
    async with fleet.worker_here() as said:
        async with run_batch(tasks, fleet.engine(), out=bench.out) as batch:
            records = asyncio.create_task(anext(aiter(batch)))
            await bench.server.wait_for_async("m", 4, timeout_s=100)
            records.cancel()
            await asyncio.gather(records, return_exceptions=True)
        assert await workflows(fleet, WorkflowExecutionStatus.RUNNING) == []
        assert sum("broken off" in line for line in said) == 4
        bench.server.release("m")
        again = run_batch(tasks, fleet.engine(), out=bench.out)
        assert statuses(await run(again)) == {f"t{n}": "passed" for n in range(6)}
    assert bench.server.count == 4 + 6
    assert (await again.progress()).spent.requests == 10


async def test_a_batch_without_any_worker_can_be_broken_off(fleet, bench):
    async with run_batch([task(1)], fleet.engine(), out=bench.out) as batch:
        records = asyncio.create_task(anext(aiter(batch)))
        await until(lambda: workflows(fleet, WorkflowExecutionStatus.RUNNING))
        records.cancel()
        await asyncio.gather(records, return_exceptions=True)
    assert await workflows(fleet, WorkflowExecutionStatus.RUNNING) == []


async def test_a_client_that_dies_and_comes_back_waits_for_what_is_at_work(fleet, bench):
    bench.server.hold("m")
    async with fleet.worker_here():
        with client_process(fleet) as client:
            try:
                await bench.server.wait_for_async("m", 4, timeout_s=100)
            finally:
                client.kill()
        again = asyncio.create_task(run(run_batch([task(n) for n in range(4)], fleet.engine(), out=bench.out)))
        bench.server.release("m")
        assert statuses(await again) == {f"t{n}": "passed" for n in range(4)}
    assert bench.server.count == 4
    assert await run(run_batch([task(n) for n in range(4)], fleet.engine(), out=bench.out)) == []


async def test_a_task_that_is_paused_is_not_worked_on_until_it_is_resumed(fleet, bench):
    bench.server.hold("m")
    async with fleet.worker_here() as said:
        records = asyncio.create_task(run(run_batch([task(1)], fleet.engine(), out=bench.out)))
        await bench.server.wait_for_async("m", timeout_s=100)
        client = await connected(fleet.address)
        await until(lambda: workflows(fleet, WorkflowExecutionStatus.RUNNING))
        (name,) = await workflows(fleet, WorkflowExecutionStatus.RUNNING)
        await client.get_workflow_handle(name).signal("pause")

        async def broken_off() -> bool:
            return any("broken off" in line for line in said)

        await until(broken_off)
        bench.server.release("m")
        assert bench.server.count == 1
        await client.get_workflow_handle(name).signal("resume")
        assert statuses(await records) == {"t1": "passed"}
    assert bench.server.count == 2


async def test_temporal_is_told_neither_tasks_nor_answers_nor_secrets_however_large(fleet, bench):
    large = "Answer: 1. " + "very long " * 400_000
    bench.replies[1] = large
    text = "Name number 1. " + "Think of it. " * 1_000
    async with fleet.worker_here():
        (record,) = await run(run_batch([task(1, task=text, expect="re:Answer")], fleet.engine(), out=bench.out))
        assert (record.status, record.result["answer"]) == ("passed", large.strip())
        (name,) = await workflows(fleet, WorkflowExecutionStatus.COMPLETED)
        client = await connected(fleet.address)
        history = (await client.get_workflow_handle(name).fetch_history()).to_json()
    assert record.result["thread_id"] in name
    for secret in ("Name number", "Think", "very long", SECRET, fleet.url, "t1"):
        assert secret not in history


async def test_a_task_with_a_setting_that_no_run_can_use_is_one_bad_record(fleet, bench):
    given = [task(1), task(2, context={"model": "profile:nobody"})]
    async with fleet.worker_here():
        one, other = sorted(await run(run_batch(given, fleet.engine(), out=bench.out)), key=lambda record: record.id)
    assert (one.status, other.status) == ("passed", "error")
    assert "nobody" in other.error


async def test_the_budget_of_a_batch_holds_over_all_workers(fleet, bench):
    async with fleet.worker_here(), fleet.worker_here():
        batch = run_batch([task(n) for n in range(60)], fleet.engine(), out=bench.out, budget_tokens=700)
        records = await run(batch)
    progress = await batch.progress()
    assert progress.counts["passed"] >= 1
    assert progress.counts["not_run"] >= 1
    assert progress.spent.tokens <= 700
    assert len(records) == 60


async def test_failed_tasks_are_run_again_on_request(fleet, bench):
    bench.replies[1] = "no"
    async with fleet.worker_here():
        assert statuses(await run(run_batch([task(1)], fleet.engine(), out=bench.out))) == {"t1": "failed"}
        bench.replies.clear()
        again = run_batch([task(1)], fleet.engine(), out=bench.out, retry_failed=True)
        assert statuses(await run(again)) == {"t1": "passed"}
    assert bench.server.count == 2


async def test_what_workers_cannot_share_is_refused(bench, fleet, sqlite_url, closed_port):
    local = read_installation(base_url=bench.server.base_url, database_url=sqlite_url)
    with pytest.raises(DatabaseError, match="use PostgreSQL"):
        await run(run_batch([task(1)], TemporalEngine(Settings(model="m"), installation=local), out=bench.out))
    engine = TemporalEngine(
        Settings(model="m"),
        installation=fleet.installation,
        place=fleet.place.model_copy(update={"address": f"127.0.0.1:{closed_port}"}),
    )
    with pytest.raises(BatchError, match=r"Temporal at 127.0.0.1:.*cannot be reached.*REFLEXION_TEMPORAL_ADDRESS"):
        await run(run_batch([task(1)], engine, out=bench.out))
    with pytest.raises(ConfigurationError, match="review"):
        await run(run_batch([task(1)], fleet.engine(review="both"), out=bench.out))


async def handed_out(fleet: Fleet) -> int:
    """Workflows whose task a worker has, or could take."""
    client = await connected(fleet.address)
    names = await workflows(fleet, WorkflowExecutionStatus.RUNNING)
    found = [await client.get_workflow_handle(name).describe() for name in names]
    return sum(bool(one.raw_description.pending_activities) for one in found)


async def test_tasks_of_a_higher_priority_overtake(fleet, bench):
    bench.server.hold("m")
    low, high = range(10), range(10, 15)
    async with fleet.worker_here(concurrency=1):
        # In two batches, as one would hand the higher ones out first by itself.
        given = [task(n, priority=-100) for n in low], [task(n, priority=100) for n in high]
        batches = [asyncio.create_task(run(run_batch(part, fleet.engine(), concurrency=10))) for part in given]
        await bench.server.wait_for_async("m", timeout_s=100)

        async def all_wait() -> bool:
            return await handed_out(fleet) == 15

        await until(all_wait)
        bench.server.release("m")
        await asyncio.gather(*batches)
    places = {number_in(request.body): place for place, request in enumerate(bench.server.requests_for("m"))}
    # By and large: a task queue has partitions, and each has an order of its own.
    assert sum(places[n] for n in high) / len(high) < sum(places[n] for n in low) / len(low)


@pytest.mark.parametrize(
    ("priority", "key"), [(100, 1), (50, 1), (49, 2), (1, 2), (0, 3), (-1, 4), (-49, 4), (-50, 5), (-100, 5)]
)
def test_a_hundred_priorities_are_five(priority, key):
    assert priority_key(priority) == key


def test_batches_and_namespaces_get_their_turns():
    assert fairness_key(Settings(), "b") == "b"
    assert fairness_key(Settings(namespace="team"), "b") == "team"
    assert len(fairness_key(Settings(namespace="ä" * 100), "b").encode()) <= 64
