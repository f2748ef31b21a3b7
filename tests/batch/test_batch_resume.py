"""A batch that was broken off goes on: each task has one result, and what was paid for is not paid for again."""

import asyncio
import random
import threading
from contextlib import suppress

import pytest
from batch_bench import Events, number_in, run, statuses, task
from batch_child import BatchChild

from reflexion.batch import BatchBusy, BatchChanged, BatchError
from reflexion.testing import Reply

AT_ONCE = 4
KILLS = 5


def needed(number):
    """Requests of a task that is never broken off: each third one needs a second attempt."""
    return 4 if number % 3 == 0 else 1


def answer(body):
    number = number_in(body)
    wrong = number % 3 == 0 and "Look it up" not in str(body["messages"])
    return "no" if wrong else f"Answer: {number}."


class Moment:
    """Holds every request that comes after so many answers, so that a process can be killed in mid-work."""

    def __init__(self, server):
        self.server = server
        self.answered = 0
        self.after = 0
        self.reached = threading.Event()
        replies = {
            "m": answer,
            "reflector-m": lambda _: {"improvement": "Look it up."},
            "planner-m": lambda _: "1. Do.",
        }
        self.models = list(replies)
        for model, reply in replies.items():
            server.default(model, self.counted(reply))

    def counted(self, reply):
        def counted(body):
            self.answered += 1
            if self.answered == self.after:
                for model in self.models:
                    self.server.hold(model)
                self.reached.set()
            return reply(body)

        return counted

    def kill(self, start, after):
        """Start a child, and kill it after so many answers in all."""
        self.after = after
        child = start()
        try:
            assert self.reached.wait(200)
        finally:
            child.kill()
        self.reached.clear()
        for model in self.models:
            self.server.release(model)


def killed_and_gone_on_with(bench, number):
    def start():
        return BatchChild(bench.server.base_url, bench.folder, {"concurrency": AT_ONCE})

    moment = Moment(bench.server)
    bench.file(*(task(n) for n in range(number)))
    total = sum(map(needed, range(number)))
    for after in sorted(random.Random(7).sample(range(1, total), KILLS)):
        moment.kill(start, after)
    last = start().says()
    assert {status for _, status in last} == {"passed"}

    written = bench.written()
    assert [record["id"] for record in written] == [f"t{n}" for n in range(number)]
    assert {record["status"] for record in written} == {"passed"}
    assert [record["attempts_made"] for record in written] == [2 if n % 3 == 0 else 1 for n in range(number)]
    assert total <= bench.server.count <= total + KILLS * AT_ONCE
    return written


async def check_ledger(bench, written):
    async with bench.agent() as agent:
        batch = agent.run_batch(bench.folder / "in.jsonl", out=bench.out, accept_changes=True)
        assert await run(batch) == []
        progress = await batch.progress()
        lines = await agent.persistence.ledger.lines(batch_id=progress.batch_id)
        checkpoints = [entry async for entry in agent.persistence.checkpointer.alist(None)]
    lost = sum(line["outcome"] == "lost" for line in lines)
    # Whatever arrived has a line; a line that was lost may never have been sent.
    assert len(lines) - lost <= bench.server.count <= len(lines)
    assert sum(record["requests"] for record in written) == len(lines) == progress.spent.requests
    assert {line["outcome"] for line in lines} <= {"ok", "lost"}
    return checkpoints


async def test_killed_at_five_moments_each_task_has_one_result_and_nothing_is_paid_for_twice(bench):
    written = await asyncio.to_thread(killed_and_gone_on_with, bench, 36)
    checkpoints = await check_ledger(bench, written)
    # What was killed between its record and its end of thread may stay.
    assert len({entry.config["configurable"]["thread_id"] for entry in checkpoints}) <= KILLS * AT_ONCE


@pytest.mark.slow
async def test_two_hundred_tasks_killed_at_five_moments(bench):
    written = await asyncio.to_thread(killed_and_gone_on_with, bench, 200)
    await check_ledger(bench, written)


async def test_the_same_file_again_does_nothing_and_says_so(bench):
    path = bench.file(task(1), "nonsense", task(3))
    events = Events()
    async with bench.agent() as agent:
        await run(agent.run_batch(path, out=bench.out))
        before, count = bench.out.read_bytes(), bench.server.count
        assert await run(agent.run_batch(path, out=bench.out, listener=events)) == []
    assert bench.out.read_bytes() == before
    assert bench.server.count == count
    assert events.of("batch_started")[0]["finished"] == {"passed": 2, "error": 1}
    assert events.of("batch_finished") == [{"event": "batch_finished", "complete": True, "ran": 0}]


async def test_new_lines_are_run_and_the_records_stay_in_order(bench):
    async with bench.agent() as agent:
        await run(agent.run_batch(bench.file(task(1), task(2)), out=bench.out))
        records = await run(agent.run_batch(bench.file(task(3), task(1), task(4), task(2)), out=bench.out))
    assert statuses(records) == {"t3": "passed", "t4": "passed"}
    assert [(record["line"], record["id"]) for record in bench.written()] == [
        (1, "t3"),
        (2, "t1"),
        (3, "t4"),
        (4, "t2"),
    ]
    assert bench.server.count == 4


async def test_a_run_that_was_broken_off_goes_on_from_its_checkpoint(bench):
    bench.replies = {1: "no"}
    bench.server.hold("planner-m")
    async with bench.agent(max_attempts=2) as agent:
        working = asyncio.create_task(run(agent.run_batch([task(1)], out=bench.out)))
        await bench.server.wait_for_async("planner-m")
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        bench.server.release("planner-m")
        count = bench.server.count
        (record,) = await run(agent.run_batch([task(1)], out=bench.out))
    assert bench.server.count == count + 2  # the plan again, and the second attempt
    assert (record.status, record.as_json()["attempts_made"], record.as_json()["requests"]) == ("failed", 2, 5)


async def test_what_the_budget_of_the_batch_breaks_off_goes_on_with_a_greater_one(bench):
    bench.replies = {1: "no"}
    once = {"max_attempts": 3, "max_tokens": 20}
    async with bench.agent("memory://", **once) as agent:
        (whole,) = await run(agent.run_batch([task(1)]))
    count = bench.server.count
    async with bench.agent(**once) as agent:
        half = whole.as_json()["tokens"] // 2
        (record,) = await run(agent.run_batch([task(1)], out=bench.out, budget_tokens=half))
        assert (record.status, record.result["answer"], record.result["stop_reason"]) == ("not_run", "no", "budget")
        assert "budget 'batch'" in record.error
        for _ in range(2):  # neither this nor what has been done is paid for again
            paid = bench.server.count
            (same,) = await run(agent.run_batch([task(1)], out=bench.out, budget_tokens=half))
            assert (same.as_json()["attempts_made"], bench.server.count) == (record.as_json()["attempts_made"], paid)
        (record,) = await run(agent.run_batch([task(1)], out=bench.out, budget_tokens=10 * half))
        assert await run(agent.run_batch([task(1)], out=bench.out)) == []
    assert (record.status, record.as_json()["attempts_made"]) == ("failed", 3)
    assert bench.server.count == 2 * count == 2 * record.as_json()["requests"]
    assert [line["status"] for line in bench.written()] == ["failed"]


async def test_a_run_that_had_ended_without_a_record_is_not_paid_for_again(bench, monkeypatch):
    from reflexion.batch.journal import Journal

    async with bench.agent() as agent:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "add", _full_disk)
            with pytest.raises(BatchError, match="No space left"):
                await run(agent.run_batch([task(1)], out=bench.out))
        (record,) = await run(agent.run_batch([task(1)], out=bench.out))
    assert (record.status, record.result["answer"], bench.server.count) == ("passed", "Answer: 1.", 1)


def _full_disk(*_):
    raise BatchError("out.jsonl: cannot be written: No space left on device")


async def test_what_failed_is_run_again_on_request_only_and_its_record_replaced(bench):
    bench.replies = {1: "no", 2: Reply.error(400, "no such thing")}
    tasks = [task(n) for n in range(4)]
    async with bench.agent() as agent:
        await run(agent.run_batch(tasks, out=bench.out))
        assert await run(agent.run_batch(tasks, out=bench.out)) == []
        bench.replies = {2: Reply.error(400, "no such thing")}
        records = await run(agent.run_batch(tasks, out=bench.out, retry_failed=True))
        assert statuses(records) == {"t1": "passed", "t2": "error"}
        assert [record["status"] for record in bench.written()] == ["passed", "passed", "error", "passed"]
        bench.replies = {}
        records = await run(agent.run_batch(tasks, out=bench.out, retry_failed=True))
    assert statuses(records) == {"t2": "passed"}
    assert bench.numbers_asked() == {0: 1, 1: 2, 2: 3, 3: 1}


async def test_a_round_of_retries_that_was_broken_off_goes_on_and_repeats_nothing(bench):
    bench.replies = dict.fromkeys(range(6), "no")
    tasks = [task(n) for n in range(6)]
    async with bench.agent() as agent:
        await run(agent.run_batch(tasks, out=bench.out))
        async with agent.run_batch(tasks, out=bench.out, retry_failed=True, concurrency=1) as batch:
            async for _ in batch:
                break
        await run(agent.run_batch(tasks, out=bench.out, retry_failed=True))
    asked = bench.numbers_asked()
    assert set(asked) == set(range(6))
    assert sum(asked.values()) <= 12 + 1
    assert {record["status"] for record in bench.written()} == {"failed"}


async def test_a_line_that_was_mended_is_run_and_its_bad_record_goes(bench):
    async with bench.agent() as agent:
        await run(agent.run_batch(bench.file(task(1), {"id": "t2", "tusk": "x"}), out=bench.out))
        records = await run(agent.run_batch(bench.file(task(1), task(2)), out=bench.out))
    assert statuses(records) == {"t2": "passed"}
    assert [(record["id"], record["status"]) for record in bench.written()] == [("t1", "passed"), ("t2", "passed")]


async def test_other_settings_are_refused_by_name_unless_they_are_accepted(bench):
    tasks = [task(1), task(2)]
    async with bench.agent() as agent:
        await run(agent.run_batch(tasks[:1], out=bench.out))
    async with bench.agent(threshold=0.5) as agent:
        with pytest.raises(BatchChanged, match=r"threshold was 0.8, now 0.5"):
            await run(agent.run_batch(tasks, out=bench.out))
        assert bench.server.count == 1
        records = await run(agent.run_batch(tasks, out=bench.out, accept_changes=True))
        assert statuses(records) == {"t2": "passed"}
        assert await run(agent.run_batch(tasks, out=bench.out)) == []


async def test_another_text_under_an_old_id_is_refused_unless_it_is_accepted(bench):
    async with bench.agent() as agent:
        await run(agent.run_batch([task(1), task(2)], out=bench.out))
        changed = [task(1), task(7, id="t2")]
        with pytest.raises(BatchChanged, match="'t2'"):
            await run(agent.run_batch(changed, out=bench.out))
        assert [record["answer"] for record in bench.written()] == ["Answer: 1.", "Answer: 2."]
        records = await run(agent.run_batch(changed, out=bench.out, accept_changes=True))
    assert statuses(records) == {"t2": "passed"}
    assert [record["answer"] for record in bench.written()] == ["Answer: 1.", "Answer: 7."]


async def test_two_batches_cannot_write_one_file(bench):
    bench.server.hold("m")
    bench.file(task(1))
    child = BatchChild(bench.server.base_url, bench.folder, {})
    await bench.server.wait_for_async("m")
    async with bench.agent(max_attempts=2) as agent:
        with pytest.raises(BatchBusy, match="another process"):
            await run(agent.run_batch([task(1)], out=bench.out))
        bench.server.release("m")
        assert await asyncio.to_thread(child.says) == [("t1", "passed")]
        await asyncio.to_thread(child._process.join)
        assert await run(agent.run_batch([task(1)], out=bench.out)) == []
    assert bench.server.count == 1


async def test_a_finished_task_leaves_no_checkpoints_unless_they_are_wanted(bench):
    async with bench.agent() as agent:
        saver = agent.persistence.checkpointer
        await run(agent.run_batch([task(n) for n in range(5)], out=bench.out))
        assert [entry async for entry in saver.alist(None)] == []
        (record,) = await run(agent.run_batch([task(9)], keep_threads=True))
        history = [
            entry
            async for entry in agent.graph.aget_state_history(
                {"configurable": {"thread_id": record.result["thread_id"]}}
            )
        ]
        assert len(history) > 4
