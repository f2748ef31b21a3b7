"""What runs leave in the database is bounded, however long their answers and however many there are."""

import itertools
import json
import sqlite3
from contextlib import closing

from loop_bench import Bench

from reflexion.memory.records import KEPT_REFLECTIONS

LONG = 200_000
"""Characters of an answer."""


def judge(task, attempt):
    return 0.5 if attempt["number"] == 3 else 0.1


def largest_checkpoint(url):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return connection.execute("SELECT MAX(LENGTH(checkpoint)) FROM checkpoints").fetchone()[0]


def long_answers(bench):
    numbers = itertools.count(1)
    bench.server.default("actor-m", lambda _: f"{next(numbers):04}" * (LONG // 4))


async def test_of_ten_long_answers_no_checkpoint_holds_more_than_two(bench: Bench):
    long_answers(bench)
    async with bench.agent(own={"evaluator": judge}) as agent:
        result = await agent.run("Write at length.", thread="t", max_attempts=10)
        values = (await agent.graph.aget_state({"configurable": {"thread_id": "t"}})).values
        size = await agent.persistence.size_bytes()
    assert [attempt.number for attempt in result.attempts if len(attempt.answer) == LONG] == [3, 10]
    assert result.answer == "0003" * (LONG // 4)
    assert "200,000 characters" in result.attempts[0].answer
    assert len(json.dumps(values["attempts"])) < 2.1 * LONG
    # The final one has the answer a third time.
    assert largest_checkpoint(bench.url) < 3.3 * LONG
    # 10 rounds of 4 nodes with two answers in each checkpoint; and each answer once more as what its actor wrote, and
    # as the reply that is kept until the run has ended and then wiped, both of which are in the log.
    assert size < 40 * 2.1 * LONG + 10 * 3.5 * LONG


async def test_a_repeated_long_answer_is_still_found_to_be_one(bench: Bench):
    answers = [f"{number}" * LONG for number in (1, 2, 3, 1)]
    bench.server.script("actor-m", *answers)
    async with bench.agent(own={"evaluator": lambda _: 0.1}) as agent:
        await agent.run("Write at length.", thread="t", max_attempts=4)
        attempts = (await agent.graph.aget_state({"configurable": {"thread_id": "t"}})).values["attempts"]
    assert [attempt.get("repeats") for attempt in attempts] == [None, None, None, 1]


async def test_a_run_adds_no_more_to_its_thread_once_the_window_is_full(bench: Bench):
    bench.server.default("critic-m", {"score": 1})
    numbers = itertools.count()
    bench.server.default("reflector-m", lambda _: {"improvement": f"Check the case {next(numbers):04} before the sum."})
    sizes = []
    async with bench.agent(max_attempts=2) as agent:
        for number in range(KEPT_REFLECTIONS + 20):
            await agent.run(f"Sum list {number:04}.", thread="t")
            (thread,) = await agent.persistence.threads.all()
            sizes.append(thread.bytes)
    added = [after - before for before, after in itertools.pairwise(sizes)]
    assert len(added) == KEPT_REFLECTIONS + 19
    assert added[0] < added[KEPT_REFLECTIONS // 2] < added[KEPT_REFLECTIONS]
    assert max(added[KEPT_REFLECTIONS:]) < 1.05 * min(added[KEPT_REFLECTIONS:])
