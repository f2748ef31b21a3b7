"""Workers that share a database: one that was given up for dead, and wakes, writes nothing and asks nobody."""

import pytest
from broken_off import TASK, Child
from loop_bench import Bench
from psycopg import connect

from reflexion.graphs import open_reflexion
from reflexion.memory import DatabaseError

NEEDED = {"actor": 2, "critic": 2, "reflector": 1, "planner": 1}
TABLES = ("checkpoints", "checkpoint_writes", "checkpoint_blobs", "reflexion_ledger", "reflexion_fence")


@pytest.fixture
def bench(server, postgres_url):
    return Bench(server, postgres_url)


def worker(bench: Bench) -> Child:
    return Child(bench.server.base_url, bench.url, "t", "", "worker")


def rows(url: str) -> dict[str, list[str]]:
    """All that the run has written."""
    with connect(url) as connection:
        return {
            table: sorted(str(row) for row in connection.execute(f"SELECT * FROM {table}").fetchall())
            for table in TABLES
        }


@pytest.mark.parametrize("role", ["actor", "critic", "planner"])
def test_a_stopped_worker_that_wakes_after_it_was_replaced_leaves_no_trace(bench, role):
    bench.server.hold(f"{role}-m")
    stopped = worker(bench)
    bench.server.wait_for(f"{role}-m", timeout_s=100)
    stopped.stop()
    try:
        bench.server.release(f"{role}-m")
        result = worker(bench).says()
        assert (result["stop_reason"], len(result["attempts"])) == ("max_attempts", 2)
        after = rows(bench.url)
        stopped.wake()
        assert stopped.says() == "fenced"
    finally:
        stopped.kill()
    assert rows(bench.url) == after
    # One request of the stopped worker was on its way; it has asked for nothing since.
    assert bench.counts() == {name: count + (name == role) for name, count in NEEDED.items()}
    assert result["usage"]["requests"] == bench.server.count


def test_a_worker_that_is_replaced_in_mid_run_ends_while_the_other_still_works(bench):
    bench.server.hold("actor-m")
    first = worker(bench)
    bench.server.wait_for("actor-m", timeout_s=100)
    second = worker(bench)
    try:
        bench.server.wait_for("actor-m", 2, timeout_s=100)
        bench.server.release("actor-m")
        assert {first.says() == "fenced", second.says()["stop_reason"]} == {True, "max_attempts"}
    finally:
        first.kill()
        second.kill()
    assert bench.counts() == NEEDED | {"actor": 3}


@pytest.mark.parametrize("url", ["memory://", None])
async def test_a_database_on_one_machine_is_refused(bench, sqlite_url, url):
    with pytest.raises(DatabaseError, match="cannot keep workers on several machines apart: use PostgreSQL"):
        async with open_reflexion(bench.settings(), database_url=url or sqlite_url, shared=True):
            pass


async def test_one_worker_after_another_works_on_a_thread(bench):
    for run in (1, 2):
        async with bench.agent(max_attempts=1, own={"shared": True}) as agent:
            result = await agent.run(TASK, thread="t")
        assert result.usage.requests == 2
        assert bench.server.count == 2 * run
