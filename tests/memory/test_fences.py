"""Who may write for a thread that several workers have taken, one after the other."""

import asyncio

import psycopg
import pytest

from reflexion.memory import ThreadBusy, open_persistence
from reflexion.memory.fences import while_held
from reflexion.models import fence
from reflexion.models.exchange import Exchange, unsent_call
from reflexion.models.fence import Fenced
from reflexion.models.ledger import Ledger


async def test_runs_without_a_fence_keep_out_workers_and_workers_them(postgres_url):
    async with open_persistence(postgres_url) as one, open_persistence(postgres_url) as other:
        async with one.locks.hold("t"):
            for database in (one, other):
                with pytest.raises(ThreadBusy):
                    await database.fenced("t").__aenter__()
        async with one.fenced("t") as first, other.fenced("t") as second, other.fenced("t") as third:
            assert [claim.epoch for claim in (first, second, third)] == [1, 2, 3]
            for database in (one, other):
                with pytest.raises(ThreadBusy):
                    await database.locks.hold("t").__aenter__()
            async with other.locks.hold("another"):
                pass
        async with one.locks.hold("t"):
            pass


async def test_only_the_last_claim_holds(postgres_url):
    async with open_persistence(postgres_url) as database, database.fenced("t \0 \ud800") as first:
        await first.check()
        async with database.fenced("t \0 \ud800") as second:
            await second.check()
            with pytest.raises(Fenced, match=r"taken over by another worker: this run \(epoch 1\) ends"):
                await first.check()
        with pytest.raises(Fenced):
            await first.check()


async def test_a_worker_that_stands_still_in_the_middle_of_a_write_does_not_keep_its_thread(postgres_url):
    async with open_persistence(postgres_url) as database, database.fenced("t") as first:
        with psycopg.connect(postgres_url) as stopped:
            stopped.execute("SELECT reflexion_fence_holds(%s, %s)", [b"t", first.epoch])
            async with asyncio.timeout(100), database.fenced("t") as second:
                await second.check()
            with pytest.raises(psycopg.OperationalError):
                stopped.execute("SELECT 1")
        with pytest.raises(Fenced):
            await first.check()


async def test_no_request_is_sent_for_a_run_that_was_fenced_and_none_of_its_lines_changes(postgres_url):
    sent = []

    async def call(claim, ends=None):
        fence.current.set(claim)
        request = Exchange(endpoint="http://127.0.0.1/v1", model="m")
        async with Ledger(database.ledger).around(request):
            sent.append(claim)
            if ends:
                await ends()
            request.call = unsent_call(request, "ok")

    async with open_persistence(postgres_url) as database, database.fenced("t") as first:
        taken = database.fenced("t")
        second = None

        async def taken_over():
            nonlocal second
            second = await taken.__aenter__()

        await asyncio.create_task(call(first, taken_over))
        # Together with lines of others, which must not suffer for it.
        calls = [call(first), call(second), call(None), call(first)]
        ended = await asyncio.gather(*(asyncio.create_task(each) for each in calls), return_exceptions=True)
        assert [type(error) for error in ended] == [Fenced, type(None), type(None), Fenced]
        assert sent == [first, second, None]
        lines = await database.ledger.lines()
        assert sorted(line["outcome"] for line in lines) == ["ok", "ok", "pending"]
        await taken.__aexit__(None, None, None)


async def test_whoever_takes_a_thread_waits_for_a_write_that_has_begun_and_sees_it(postgres_url):
    async with (
        open_persistence(postgres_url) as database,
        database.fenced("t") as first,
        database.fences._pool.connection() as connection,
    ):
        taken = database.fenced("t")
        async with while_held(connection, [first]):
            await (await connection.execute("SELECT 1")).fetchone()  # what was sent before has arrived
            taking = asyncio.create_task(taken.__aenter__())
            await blocked(database)
            assert not taking.done()
        second = await asyncio.wait_for(taking, 60)
        assert second.epoch == 2
        await taken.__aexit__(None, None, None)


async def blocked(database) -> None:
    """Wait until somebody waits for a lock."""
    async with asyncio.timeout(60), database.fences._pool.connection() as connection:
        while True:
            cursor = await connection.execute(
                "SELECT count(*) AS n FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            if (await cursor.fetchone())["n"]:
                return
            await asyncio.sleep(0.01)
