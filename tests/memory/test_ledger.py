"""The ledger in real databases: nothing that was spent is forgotten, whatever dies."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from textwrap import indent

import pytest
from blockbuster import blockbuster_ctx

from reflexion.memory.persistence import open_persistence
from reflexion.models.budget import Budget
from reflexion.models.exchange import Exchange
from reflexion.models.ledger import LOST, PENDING, Ledger, MemoryLedger, sums
from reflexion.models.usage import Call, Usage


def exchange(**more):
    where = {"run_id": "run 1", "thread_id": "thread 1", "batch_id": "batch 1", "role": "actor", "attempt": 1}
    return Exchange(
        endpoint="http://127.0.0.1/v1",
        model="m",
        prompt_tokens=100,
        reply_tokens=50,
        cost_usd=lambda prompt, reply: Decimal("0.000001") * (prompt + reply),
        **where | more,
    )


def answer(exchange, *, reply=20, outcome="ok", **more):
    exchange.call = Call(
        id="of the client",
        role=exchange.role,
        attempt=exchange.attempt,
        model=exchange.model,
        returned_model="m-1",
        prompt_tokens=90,
        completion_tokens=reply,
        cached_tokens=10,
        reasoning_tokens=5,
        cost_usd="0.0000375",
        estimated=False,
        latency_s=0.5,
        first_token_s=0.1,
        outcome=outcome,
    )
    exchange.call.update(more)


async def call(ledger, **where):
    request = exchange(**where)
    async with ledger.around(request):
        answer(request)
    return request


async def test_a_line_is_there_before_the_request_and_complete_after_it(database_url):
    async with open_persistence(database_url) as database:
        ledger = Ledger(database.ledger, now=lambda: 1234.5)
        request = exchange(retry=2)
        async with ledger.around(request):
            (line,) = await database.ledger.lines()
            assert line == ledger.lines[0]
            assert (line["outcome"], line["estimated"], line["cost_usd"]) == (PENDING, True, "0.00015")
            assert (line["prompt_tokens"], line["completion_tokens"]) == (100, 50)
            answer(request)
        (line,) = await database.ledger.lines()
        assert line == ledger.lines[0]
        assert {key: line[key] for key in request.call} == request.call
        assert {key: line[key] for key in set(line) - set(request.call)} == {
            "run_id": "run 1",
            "thread_id": "thread 1",
            "batch_id": "batch 1",
            "endpoint": "http://127.0.0.1/v1",
            "retry": 2,
            "started_at": 1234.5,
        }
        assert ledger.usage.tokens == 110


async def test_lines_outlive_the_process_and_sum_up(durable_url):
    async with open_persistence(durable_url) as database:
        for run in ("run 1", "run 2"):
            ledger = Ledger(database.ledger)
            for role in ("actor", "evaluator"):
                await call(ledger, run_id=run, role=role, thread_id=f"thread of {run}")
        await call(Ledger(database.ledger), run_id="run 3", batch_id="another")
    async with open_persistence(durable_url) as database:
        lines = await database.ledger.lines(batch_id="batch 1")
        assert {name: usage.requests for name, usage in sums(lines, "role").items()} == {"actor": 2, "evaluator": 2}
        assert {name: usage.requests for name, usage in sums(lines, "run_id").items()} == {"run 1": 2, "run 2": 2}
        assert Usage.of(lines).cost_usd == Decimal("0.00015")
        assert len(await database.ledger.lines(thread_id="thread of run 1")) == 2
        assert len(await database.ledger.lines(run_id="run 2", batch_id="another")) == 0
        assert len(await database.ledger.lines()) == 5


async def test_failed_and_cancelled_requests_are_in_it(database_url):
    async with open_persistence(database_url) as database:
        ledger = Ledger(database.ledger)
        sent = asyncio.Event()

        async def hang():
            request = exchange()
            async with ledger.around(request):
                try:
                    sent.set()
                    await asyncio.sleep(3600)
                finally:
                    answer(request, outcome="cancelled", estimated=True)

        task = asyncio.create_task(hang())
        await sent.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        request = exchange()
        with pytest.raises(RuntimeError):  # noqa: PT012 - the guard must see it pass
            async with ledger.around(request):
                answer(request, outcome="overloaded")
                raise RuntimeError
        assert [line["outcome"] for line in await database.ledger.lines()] == ["cancelled", "overloaded"]
        assert ledger.usage.requests == 2


async def test_a_request_that_was_not_sent_leaves_no_line(database_url):
    async with open_persistence(database_url) as database:
        ledger = Ledger(database.ledger)
        with pytest.raises(RuntimeError):
            async with ledger.around(exchange()):
                raise RuntimeError
        assert await database.ledger.lines() == ledger.lines == []


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_at_any_moment_leaves_no_pending_line(database_url, turns):
    async with open_persistence(database_url) as database:
        ledger = Ledger(database.ledger)
        request = exchange()

        async def one():
            async with ledger.around(request):
                answer(request)

        task = asyncio.create_task(one())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await call(ledger)
        lines = await database.ledger.lines()
        assert PENDING not in [line["outcome"] for line in lines]
        assert len(lines) == 2 - (request.call is None)


async def test_many_in_parallel_are_committed_together_and_none_is_lost(database_url):
    async with open_persistence(database_url) as database:
        ledgers = [Ledger(database.ledger) for _ in range(20)]
        await asyncio.gather(*(call(ledger, run_id=f"run {n % 20}") for n, ledger in enumerate(ledgers * 10)))
        lines = await database.ledger.lines()
        assert len(lines) == len({line["id"] for line in lines}) == 200
        assert {usage.requests for usage in sums(lines, "run_id").values()} == {10}


async def test_a_line_that_the_database_refuses_does_not_take_others_with_it(durable_url):
    async with open_persistence(durable_url) as database:
        ledger = Ledger(database.ledger)
        bad = asyncio.create_task(call(ledger, run_id=None))
        results = await asyncio.gather(bad, *(call(ledger) for _ in range(5)), return_exceptions=True)
        assert isinstance(results[0], Exception)
        assert not any(isinstance(result, Exception) for result in results[1:])
        assert len(await database.ledger.lines()) == len(ledger.lines) == 5


async def test_a_completion_that_cannot_be_written_costs_no_reply(caplog):
    class Breaks(MemoryLedger):
        async def write(self, line, reply=None):
            if line["outcome"] != PENDING:
                raise OSError("disk full")
            await super().write(line)

    store = Breaks()
    ledger = Ledger(store)
    await call(ledger)
    assert ledger.lines[0]["outcome"] == "ok"
    assert (await store.lines())[0]["outcome"] == PENDING
    assert "keeps its estimate" in caplog.text


async def test_nothing_is_sent_that_cannot_be_recorded():
    class Breaks(MemoryLedger):
        async def write(self, line, reply=None):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        async with Ledger(Breaks()).around(exchange()):
            pytest.fail("sent")


async def test_an_answer_from_the_cache_is_a_line_too(database_url):
    async with open_persistence(database_url) as database:
        ledger = Ledger(database.ledger)
        request = exchange()
        answer(request, outcome="cached", cost_usd="0")
        await ledger.add(request)
        assert [line["outcome"] for line in await database.ledger.lines()] == ["cached"]
        assert ledger.lines == await database.ledger.lines()


async def test_a_batchs_lines_are_summed_up_exactly_without_reading_them(database_url):
    async with open_persistence(database_url) as persistence:
        ledger = Ledger(persistence.ledger)
        costs = ["0.1", "0.2", "0.1", "0.0000001", None]
        for number, cost in enumerate(costs):
            request = exchange(run_id=f"run {number}", batch_id="b" if cost else "unpriced")
            async with ledger.around(request):
                answer(request, reply=number, cost_usd=cost, estimated=number == 2)
        unsent = exchange(batch_id="b")
        answer(unsent, outcome="circuit_open", cost_usd="0")
        await ledger.add(unsent)
        pending = exchange(batch_id="b")
        async with ledger.around(pending):
            for batch in ("b", "unpriced", "nobody's"):
                lines = await persistence.ledger.lines(batch_id=batch)
                assert await persistence.ledger.total(batch_id=batch) == Usage.of(lines)
            total = await persistence.ledger.total(batch_id="b")
    assert (total.requests, total.estimated) == (5, True)
    assert total.cost_usd == Decimal("0.4000001") + Decimal("0.00015")


async def test_old_lines_are_pruned(database_url, monkeypatch):
    monkeypatch.setattr("reflexion.memory.ledger.PRUNED_AT_ONCE", 3)
    async with open_persistence(database_url) as database:
        store = database.ledger
        monkeypatch.setattr(store, "_now", lambda: 1000.0)
        for started in range(0, 1000, 100):
            await call(Ledger(store, now=lambda started=started: float(started)))
        assert await store.prune(older_than_s=300) == 7
        assert [line["started_at"] for line in await store.lines()] == [700, 800, 900]
        assert await store.prune() == 0


async def test_the_event_loop_is_never_blocked(database_url):
    with blockbuster_ctx():
        async with open_persistence(database_url) as database:
            await call(Ledger(database.ledger))
            await Ledger.resumed(database.ledger, "run 1")
            await database.ledger.prune()


async def test_two_processes_write_into_one_ledger(durable_url):
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", MANY, durable_url, str(number))
        for number in range(2)
    ]
    assert [await child.wait() for child in children] == [0, 0]
    async with open_persistence(durable_url) as database:
        by_run = sums(await database.ledger.lines(), "run_id")
    assert {name: usage.requests for name, usage in by_run.items()} == {"run 0": 100, "run 1": 100}


COMMON = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from test_ledger import Ledger, answer, call, exchange, open_persistence

async def main():
    async with open_persistence(sys.argv[1]) as database:
{body}
asyncio.run(main())
"""


def script(body):
    return COMMON.format(folder=str(Path(__file__).parent), body=indent(body, " " * 8))


MANY = script("""
ledger = Ledger(database.ledger)
await asyncio.gather(*(call(ledger, run_id=f"run {sys.argv[2]}") for _ in range(100)))
""")

IN_FLIGHT = script("""
ledger = Ledger(database.ledger)
await call(ledger)
async def hang():
    async with ledger.around(exchange(attempt=2)):
        print("sent", flush=True)
        await asyncio.sleep(3600)
await asyncio.gather(*(hang() for _ in range(3)))
""")


async def test_after_kill_9_in_mid_flight_the_ledger_holds_what_was_spent(durable_url):
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", IN_FLIGHT, durable_url, stdout=subprocess.PIPE)
    assert [await child.stdout.readline() for _ in range(3)] == [b"sent\n"] * 3
    child.kill()
    assert await child.wait() == -signal.SIGKILL
    async with open_persistence(durable_url) as database:
        await call(Ledger(database.ledger), run_id="another run")
        ledger = await Ledger.resumed(database.ledger, "run 1")
        assert [line["outcome"] for line in ledger.lines] == ["ok", LOST, LOST, LOST]
        assert ledger.usage == Usage(
            requests=4,
            prompt_tokens=90 + 3 * 100,
            completion_tokens=20 + 3 * 50,
            cached_tokens=10,
            reasoning_tokens=5,
            cost_usd=Decimal("0.0000375") + 3 * Decimal("0.00015"),
            estimated=True,
        )
        assert Usage.of(await database.ledger.lines(run_id="run 1")) == ledger.usage
        budget = Budget(tokens=600, spent=ledger.usage)
        assert budget.remaining.tokens == 600 - 560
        await call(ledger)
        assert len(await database.ledger.lines(run_id="run 1")) == len(ledger.lines) == 5


async def test_a_live_runs_pending_lines_are_left_alone(database_url):
    async with open_persistence(database_url) as database, Ledger(database.ledger).around(exchange(run_id="alive")):
        assert await database.ledger.lose("dead") == 0
        assert (await database.ledger.lines())[0]["outcome"] == PENDING


async def test_the_table_is_beside_the_checkpointers(sqlite_url):
    async with open_persistence(sqlite_url) as database:
        await call(Ledger(database.ledger))
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert {"reflexion_ledger", "checkpoints"} <= tables
        assert connection.execute("SELECT json_extract(line, '$.cost_usd') FROM reflexion_ledger").fetchall() == [
            ("0.0000375",)
        ]


async def test_only_the_ledger_does_not_wait_for_the_servers_disk(postgres_url):
    async with open_persistence(postgres_url) as database:
        await call(Ledger(database.ledger))
        async with database.ledger._pool.connection() as connection:
            cursor = await connection.execute("SHOW synchronous_commit")
            assert await cursor.fetchone() == {"synchronous_commit": "on"}
