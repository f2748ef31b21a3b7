"""A batch runs each task once, one bad task is one bad record, and limits hold for all of them together."""

import asyncio
from contextlib import aclosing
from decimal import Decimal

import pytest
from batch_bench import Events, number_in, run, statuses, task

from reflexion.batch import BatchError, Record, Savings, Task, run_batch
from reflexion.graphs import ConfigurationError, open_reflexion
from reflexion.models import ConnectionSettings
from reflexion.testing import Reply


async def test_every_task_has_one_record_in_the_order_of_the_input(bench):
    bench.replies = {2: "Answer: 7."}
    path = bench.file(task(1, priority=-5), task(2), "nonsense", task(4), {"task": "Name number 5.", "expect": "5."})
    async with bench.agent() as agent:
        records = await run(agent.run_batch(path, out=bench.out))
    assert statuses(records) == {"t1": "passed", "t2": "failed", "line-3": "error", "t4": "passed", "line-5": "passed"}
    written = bench.written()
    assert [(record["line"], record["id"]) for record in written] == [
        (1, "t1"),
        (2, "t2"),
        (3, "line-3"),
        (4, "t4"),
        (5, "line-5"),
    ]
    assert {record.id: record.as_json() for record in records} == {record["id"]: record for record in written}
    assert [Record.of_line(line) for line in bench.out.read_text().splitlines()] == sorted(
        records, key=lambda record: record.line
    )
    assert (written[0]["answer"], written[0]["requests"], written[2]["requests"]) == ("Answer: 1.", 1, 0)
    assert bench.server.count == 4


async def test_one_task_that_the_endpoint_refuses_is_one_error(bench):
    bench.replies = {3: Reply.error(400, "no such thing")}
    async with bench.agent() as agent:
        records = await run(agent.run_batch([task(n) for n in range(1, 6)], out=bench.out))
    assert statuses(records) == {"t1": "passed", "t2": "passed", "t3": "error", "t4": "passed", "t5": "passed"}
    assert [record["id"] for record in bench.written()] == ["t1", "t2", "t3", "t4", "t5"]
    (bad,) = [record for record in records if record.status == "error"]
    assert "no such thing" in bad.error


async def test_whatever_fails_in_one_task_is_in_its_record(bench):
    bench.replies = {2: Reply("", refusal="No."), 3: Reply.error(500, "out of order")}

    def judge(task, answer):
        if "number 4" in task.text:
            raise RuntimeError("the judge is ill")
        return True

    tasks = [{"id": str(n), "task": f"Name number {n}."} for n in range(1, 6)]
    tasks.append({"id": "6", "task": "Name number 6.", "context": {"model": "other", "actor_model": "other"}})
    bench.server.default("other", Reply.error(404, "no such model"))
    connection = ConnectionSettings(base_url=bench.server.base_url, api_key="any", max_retries=0)
    own = {"connection": connection, "database_url": bench.url, "evaluator": judge}
    async with open_reflexion(bench.agent().settings, **own) as agent:
        records = await run(agent.run_batch(tasks, concurrency=1))
    found = {record.id: record for record in records}
    assert statuses(records) == {
        "1": "passed",
        "2": "error",
        "3": "error",
        "4": "unscored",
        "5": "passed",
        "6": "error",
    }
    for name, says in {"2": "No.", "3": "out of order", "4": "the judge is ill", "6": "no such model"}.items():
        assert says in found[name].error
    assert found["4"].result["answer"] == "Answer: 4."


async def test_a_task_has_settings_of_its_own(bench):
    bench.replies = {1: "no", 2: "no"}
    async with bench.agent(max_attempts=3) as agent:
        records = await run(agent.run_batch([task(1, context={"max_attempts": 1}), task(2)]))
    assert {record.id: record.as_json()["attempts_made"] for record in records} == {"t1": 1, "t2": 3}


async def test_an_id_that_is_given_twice_is_a_bad_line_that_names_the_first(bench):
    for out in (None, bench.out):
        async with bench.agent() as agent:
            records = await run(agent.run_batch([task(1), task(2, id="t1"), task(3)], out=out))
        (bad,) = [record for record in records if record.line == 2]
        assert (bad.status, bad.id) == ("error", "t1")
        assert "line 1" in bad.error


async def test_no_more_tasks_are_at_work_than_may_be_and_the_highest_priority_goes_first(bench):
    bench.server.hold("m")
    tasks = [task(n, priority=n % 3) for n in range(12)]
    async with bench.agent() as agent:
        working = asyncio.create_task(run(agent.run_batch(tasks, concurrency=4)))
        await bench.server.wait_for_async("m", 4)
        first = {number_in(request.body) for request in bench.server.requests_for("m")}
        bench.server.release("m")
        await working
    assert first == {2, 5, 8, 11}
    assert bench.server.peak_concurrency == 4
    assert len(bench.numbers_asked()) == 12


async def test_leaving_early_breaks_off_what_is_at_work(bench):
    async with bench.agent() as agent:
        async with run_batch((task(n) for n in range(10_000)), agent, concurrency=3) as batch:
            async for record in batch:
                assert record.status == "passed"
                break
        count = bench.server.count
        await agent.run("Name number 0.", expect="0.")
        assert bench.server.count == count + 1
        bench.server.hold("m")
        async with aclosing(aiter(agent.run_batch([task(1)]))) as records:
            waiting = asyncio.ensure_future(anext(records))
            await bench.server.wait_for_async("m", count + 2)
            waiting.cancel()
            await asyncio.wait([waiting])
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_batch_is_iterated_over_once(bench):
    async with bench.agent() as agent:
        batch = agent.run_batch([task(1)])
        await run(batch)
        with pytest.raises(RuntimeError, match="once"):
            aiter(batch)


async def test_the_consumer_is_waited_for(bench):
    async with bench.agent("memory://") as agent, agent.run_batch(task(n) for n in range(5_000)) as batch:
        records = aiter(batch)
        await anext(records)
        for n in range(150):  # meanwhile the batch, eight tasks at once, would get far
            await agent.run(f"Name number {n}.", expect=f"{n}.")
        assert bench.server.count - 150 < 300


async def test_fail_fast_breaks_off_the_others_and_nothing_is_asked_afterwards(bench):
    events = Events()
    bench.server.hold("m")
    bench.server.script("bad", Reply.error(400, "no such thing"))
    tasks = [task(1), task(2), task(3, context={"actor_model": "bad"}), task(4), task(5)]
    async with bench.agent() as agent:
        working = asyncio.create_task(
            run(agent.run_batch(tasks, out=bench.out, concurrency=3, fail_fast=True, listener=events))
        )
        records = await working
        count = bench.server.count
        bench.server.release("m")
        assert statuses(records) == {"t1": "not_run", "t2": "not_run", "t3": "error", "t4": "not_run", "t5": "not_run"}
        assert "t3" in events.of("stopped")[0]["reason"]
        assert not events.of("batch_finished")[0]["complete"]
        records = await run(agent.run_batch(tasks, out=bench.out))
    assert statuses(records) == {"t1": "passed", "t2": "passed", "t4": "passed", "t5": "passed"}
    assert bench.server.count == count + 4
    assert [record["status"] for record in bench.written()] == ["passed", "passed", "error", "passed", "passed"]


async def test_the_budget_is_never_overspent_and_a_greater_one_goes_on(bench):
    tasks = [task(n, context={"max_tokens": 20}) for n in range(30)]
    async with bench.agent() as agent:
        (one,) = await run(agent.run_batch(tasks[:1]))
        each = one.as_json()["tokens"]
        events = Events()
        batch = agent.run_batch(tasks, out=bench.out, concurrency=8, budget_tokens=each * 12, listener=events)
        records = await run(batch)
        progress = await batch.progress()
        lines = await agent.persistence.ledger.lines(batch_id=progress.batch_id)
        counts = {status: list(statuses(records).values()).count(status) for status in ("passed", "not_run")}
        assert sum(counts.values()) == len(records) == 30
        assert 8 <= counts["passed"] <= 12
        assert sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines) <= each * 12
        assert progress.spent.tokens <= each * 12
        assert [record["id"] for record in bench.written()] == [f"t{n}" for n in range(30)]
        assert events.of("stopped")
        asked = bench.server.count

        again = await run(agent.run_batch(tasks, out=bench.out, budget_tokens=each * 12))
        assert {record.status for record in again} <= {"not_run"}
        assert bench.server.count == asked

        records = await run(agent.run_batch(tasks, out=bench.out, budget_tokens=each * 60))
    assert len(records) == counts["not_run"]
    assert {record["status"] for record in bench.written()} == {"passed"}
    assert set(bench.numbers_asked().values()) <= {1, 2}  # the first was asked alone before
    assert bench.server.count == 31


async def test_a_budget_in_dollars_needs_a_price_and_holds(bench):
    tasks = [task(n, context={"max_tokens": 20}) for n in range(20)]
    async with bench.agent() as agent:
        with pytest.raises(ConfigurationError, match="price"):
            await run(agent.run_batch(tasks, budget_usd="1.00", out=bench.out))
    prices = {name: {"input": 100, "output": 100} for name in ("m", "reflector-m", "planner-m")}
    async with bench.agent(connection={"prices": prices}) as agent:
        batch = agent.run_batch(tasks, budget_usd="0.05", out=bench.out)
        records = await run(batch)
        spent = (await batch.progress()).spent
    assert 0 < spent.cost_usd <= Decimal("0.05")
    assert spent.cost_usd == sum(Decimal(record.result["usage"]["cost_usd"]) for record in records if record.result)
    assert {"passed", "not_run"} == set(statuses(records).values())


async def test_a_batch_saves_in_the_stated_order_before_it_stops(bench):
    bench.replies = dict.fromkeys(range(100), "no")
    bench.server.default("cheap", lambda body: "no" if "JSON" not in str(body) else {"improvement": "Look it up."})
    tasks = [task(n) for n in range(60)]
    events = Events()
    async with bench.agent(max_attempts=3, max_tokens=20, cheaper_model="cheap") as agent:
        (one,) = await run(agent.run_batch(tasks[:1]))
        records = await run(
            agent.run_batch(tasks, concurrency=1, budget_tokens=20 * one.as_json()["tokens"], listener=events)
        )
    steps = [(event["cheaper_model"], event["fewer_attempts"], event["no_planner"]) for event in events.of("saving")]
    assert steps == [(True, False, False), (True, True, False), (True, True, True)]
    ran = [record for record in sorted(records, key=lambda record: record.line) if record.status == "failed"]
    models = [list(record.result["usage"]["by_model"]) for record in ran]
    assert "m" in models[0]
    assert models[-2] == ["cheap"]
    assert (len(ran[0].result["attempts"]), len(ran[-2].result["attempts"])) == (3, 2)
    assert "planner" in ran[0].result["usage"]["by_role"]
    assert "planner" not in ran[-2].result["usage"]["by_role"]
    assert records[-1].status == "not_run"


async def test_nothing_is_said_of_what_there_was_not_to_begin_with(bench):
    events = Events()
    async with bench.agent("memory://") as agent:
        batch = agent.run_batch(
            [task(1)],
            listener=events,
            economy=lambda _: Savings(cheaper_model=True, fewer_attempts=True, no_planner=True),
        )
        await run(batch)
        assert (await batch.progress()).savings == Savings()
    assert not events.of("saving")


async def test_when_its_time_is_over_a_batch_breaks_off_and_can_be_gone_on_with(bench):
    bench.server.hold("m")
    async with bench.agent() as agent:
        records = await run(agent.run_batch([task(1), task(2), task(3)], out=bench.out, concurrency=2, deadline_s=0.5))
        assert set(statuses(records).values()) == {"not_run"}
        assert "0.5 s" in records[0].error
        bench.server.release("m")
        records = await run(agent.run_batch([task(1), task(2), task(3)], out=bench.out, deadline_s=500))
    assert set(statuses(records).values()) == {"passed"}


async def test_progress_says_how_the_batch_stands(bench):
    tasks = [task(n) for n in range(4)]
    async with bench.agent(connection={"requests_per_minute": 6000}) as agent:
        batch = agent.run_batch(tasks, out=bench.out, budget_tokens=100_000)
        with pytest.raises(RuntimeError, match="not begun"):
            await batch.progress()
        await run(batch)
        progress = await batch.progress()
    assert (progress.counts, progress.ran, progress.read, progress.expected) == ({"passed": 4}, 4, 4, 4)
    assert (progress.running, progress.waiting, progress.paused, progress.stopped) == (0, 0, "", "")
    assert progress.forecast_tokens == progress.spent.tokens > 0
    assert progress.forecast_usd is None
    assert progress.rate > 0
    assert [limit.model for limit in progress.health.limits] == ["m"]
    assert [circuit.state for circuit in progress.health.circuits] == ["closed"]


async def test_a_listener_that_fails_does_not_end_the_batch(bench):
    def listener(event):
        raise RuntimeError("no")

    async with bench.agent("memory://") as agent:
        assert statuses(await run(agent.run_batch([task(1)], listener=listener))) == {"t1": "passed"}


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"budget_usd": 0},
        {"budget_usd": "much"},
        {"budget_usd": "NaN"},
        {"budget_tokens": -1},
        {"deadline_s": 0},
        {"deadline_s": float("inf")},
        {"out": "/no/such/folder/out.jsonl"},
        {"out": "/"},
    ],
)
async def test_an_option_that_cannot_be_used_is_refused_before_anything_is_paid_for(bench, options):
    async with bench.agent("memory://") as agent:
        with pytest.raises(BatchError):
            await run(agent.run_batch([task(1)], **options))
    assert bench.server.count == 0


async def test_settings_that_no_task_could_run_with_are_refused(bench):
    for settings, says in (({"review": "both"}, "review"), ({"model": None, "actor_model": None}, "model")):
        async with bench.agent("memory://", **settings) as agent:
            with pytest.raises(ValueError, match=says):
                await run(agent.run_batch([Task(**task(1))]))
    assert bench.server.count == 0


async def test_a_source_that_fails_ends_the_batch_with_its_error(bench):
    def source():
        yield from (task(n) for n in range(150))
        raise OSError("the disk is gone")

    async with bench.agent("memory://") as agent:
        with pytest.raises(OSError, match="the disk is gone"):
            await run(agent.run_batch(source()))
