"""What the summary of a batch says, and who else can read the records."""

import json
from decimal import Decimal

import duckdb
import pandas
import pytest
from batch_bench import number_in, run, task

from reflexion.batch import BatchError
from reflexion.batch.summary import summarize
from reflexion.models.prices import Price
from reflexion.testing import Reply

PRICES = {
    "m": {"input": 1, "output": 2},
    "reflector-m": {"input": 1, "output": 2},
    "planner-m": {"input": 1, "output": 2},
}


def mends(body):
    """Right at once for even numbers, after a plan for 1 and 5, never for 3 and 7."""
    number = number_in(body)
    planned = "Look it up" in json.dumps(body["messages"])
    right = number % 2 == 0 or (number % 4 == 1 and planned)
    return f"Answer: {number}." if right else "Answer: none."


@pytest.fixture
async def worked_on(bench):
    """Eight tasks with numbers 0 to 7, a bad line, and one that the endpoint refuses."""
    bench.server.default("m", mends)
    bench.server.default("refusing-m", Reply.error(400, "too long", code="context_length_exceeded"))
    refused = task(8, context={"actor_model": "refusing-m"})
    path = bench.file(*(task(number) for number in range(8)), "nonsense", refused)
    async with bench.agent(max_attempts=3, connection={"prices": PRICES | {"refusing-m": PRICES["m"]}}) as agent:
        await run(agent.run_batch(path, out=bench.out))
    return bench


async def test_it_counts_what_came_of_the_tasks(worked_on):
    found = summarize(worked_on.out)
    assert (found.tasks, found.passed) == (10, 6)
    assert found.statuses == {"passed": 6, "failed": 2, "unscored": 0, "error": 2, "not_run": 0}
    assert [(rate.count, rate.of) for rate in found.by_attempt] == [(4, 8), (6, 8), (6, 8)]
    assert found.stop_reasons["passed"] == 6
    assert [(group.count, group.first_id) for group in found.errors] == [(1, "line-9"), (1, "t8")]
    assert found.failures == {"": 1, "context_length": 1}


async def test_it_says_what_reflecting_has_brought_and_what_it_took(worked_on):
    reflecting = summarize(worked_on.out).reflecting
    assert [(r.count, r.of) for r in (reflecting.first, reflecting.final, reflecting.gained)] == [
        (4, 8),
        (6, 8),
        (2, 4),
    ]
    asked = {model: len(worked_on.server.requests_for(f"{model}-m")) for model in ("reflector", "planner")}
    again = len(worked_on.server.requests_for("m")) - 8
    assert reflecting.usage.requests == again + asked["reflector"] + asked["planner"]
    told = reflecting.as_json()
    assert told["tokens_per_gained"] == reflecting.usage.tokens / 2
    assert Decimal(told["cost_usd_per_gained"]) == reflecting.usage.cost_usd / 2


async def test_the_sums_are_those_of_the_ledger(worked_on):
    found = summarize(worked_on.out, {"mine": Price(input=Decimal(1), output=Decimal(2)), "dear": _Unknown()})
    async with worked_on.agent() as agent:
        lines = await agent.persistence.ledger.lines()
    assert found.usage.requests == worked_on.server.count == len(lines)
    assert found.usage.tokens == sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines)
    assert found.usage.cost_usd == sum(Decimal(line["cost_usd"]) for line in lines)
    assert sum(usage.requests for usage in found.usage_by_role.values()) == found.usage.requests
    assert set(found.usage_by_model) == {"m", "reflector-m", "planner-m", "refusing-m"}
    assert found.what_if_usd["mine"] == pytest.approx(found.usage.cost_usd, rel=Decimal("0.01"))
    assert found.what_if_usd["dear"] is None
    assert found.as_json()["what_if_usd"]["dear"] is None
    latencies = sorted(line["latency_s"] * 1000 for line in lines if line["outcome"] == "ok")
    assert found.latency_ms.p99 == pytest.approx(latencies[-1], abs=0.1)


async def test_an_unknown_price_makes_the_cost_unknown_and_not_zero(bench):
    async with bench.agent() as agent:
        await run(agent.run_batch(bench.file(task(1)), out=bench.out))
    told = summarize(bench.out).as_json()
    assert (told["usage"]["cost_usd"], told["cost_usd_per_passed"]) == (None, None)
    assert told["tokens_per_passed"] > 0


async def test_a_task_that_was_run_again_counts_once(bench):
    bench.replies = {2: "Answer: none.", 3: "Answer: none."}
    path = bench.file(task(1), task(2), task(3))
    async with bench.agent() as agent:
        await run(agent.run_batch(path, out=bench.out))
        bench.replies = {3: Reply(hang=True)}
        async with agent.run_batch(path, out=bench.out, retry_failed=True) as batch:
            async for _ in batch:
                break  # so the old record stays in the file
    assert [record["status"] for record in bench.written()] == ["passed", "failed", "failed", "passed"]
    assert summarize(bench.out).statuses == {"passed": 2, "failed": 1, "unscored": 0, "error": 0, "not_run": 0}


async def test_a_copy_without_its_journal_says_the_same(worked_on):
    copy = worked_on.folder / "copy.jsonl"
    copy.write_bytes(worked_on.out.read_bytes())
    assert summarize(copy).as_json() == summarize(worked_on.out).as_json()


@pytest.mark.parametrize("text", ['{"id": "1", "task": "2 + 2?"}\n', "nonsense\n", "[]\n"])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(BatchError, match="record 1 is none of a batch"):
        summarize(path)
    assert list(tmp_path.iterdir()) == [path]


def test_no_records_come_to_nothing():
    found = summarize([])
    assert (found.tasks, found.passed, found.by_attempt, found.duration_s.p50) == (0, 0, [], None)
    assert found.as_json()["reflecting"]["cost_usd_per_gained"] is None


async def test_pandas_opens_the_records_as_they_are(worked_on):
    frame = pandas.read_json(worked_on.out, lines=True)
    assert list(frame["id"]) == [*(f"t{number}" for number in range(8)), "line-9", "t8"]
    assert frame.groupby("status")["attempts_made"].sum().to_dict() == {"passed": 8, "failed": 6, "error": 0}
    assert frame["cost_usd"].sum() == pytest.approx(float(summarize(worked_on.out).usage.cost_usd))


async def test_duckdb_opens_the_records_as_they_are(worked_on):
    out = str(worked_on.out)
    rows = duckdb.sql(f"SELECT status, count(*), sum(tokens) FROM '{out}' GROUP BY status ORDER BY status").fetchall()
    assert [(status, count) for status, count, _ in rows] == [("error", 2), ("failed", 2), ("passed", 6)]
    passed = f"SELECT id, a.number FROM '{out}', unnest(attempts) AS t(a) WHERE a.passed ORDER BY line"
    assert duckdb.sql(passed).fetchall()[:2] == [("t0", 1), ("t1", 2)]
    assert duckdb.sql(f"SELECT sum(usage.requests) FROM '{out}'").fetchall() == [(worked_on.server.count,)]


class _Unknown:
    def cost_usd(self, **tokens):
        return None
