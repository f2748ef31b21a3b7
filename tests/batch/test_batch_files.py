"""The file of records and its journal survive whatever ends a process, and open in pandas and DuckDB as they are."""

import json

import duckdb
import pandas as pd
import pytest
from batch_bench import run, task

from reflexion.batch import BatchError
from reflexion.batch.journal import Journal
from reflexion.batch.record_file import RecordFile
from reflexion.testing import Reply


async def finish(bench, *numbers):
    async with bench.agent() as agent:
        return await run(agent.run_batch([task(n) for n in numbers], out=bench.out, concurrency=1))


async def test_what_a_crash_left_behind_the_last_commit_is_cut_off(bench):
    await finish(bench, 1, 2)
    whole = bench.out.read_bytes()
    for torn in (b'{"line":3,"id":"t3"', b'{"line":3}\n{"line":4', b"\0" * 5000):
        bench.out.write_bytes(whole + torn)
        assert await finish(bench, 1, 2) == []
        assert bench.out.read_bytes() == whole


@pytest.mark.parametrize("where", [(RecordFile, "replace"), (Journal, "_adopt")])
async def test_a_crash_while_the_records_are_put_in_order_loses_none(bench, monkeypatch, where):
    class Crash(BaseException):
        pass

    def crash(*_):
        raise Crash

    bench.server.default("m", lambda body: "Answer: 3.")
    tasks = [task(1, priority=-1), task(3, priority=1), task(2)]
    async with bench.agent() as agent:
        with monkeypatch.context() as patched:
            patched.setattr(*where, crash)
            with pytest.raises(Crash):
                await run(agent.run_batch(tasks, out=bench.out, concurrency=1))
        count = bench.server.count
        assert await run(agent.run_batch(tasks, out=bench.out)) == []
    assert bench.server.count == count
    assert [record["id"] for record in bench.written()] == ["t1", "t3", "t2"]
    assert sorted(file.name for file in bench.folder.glob("out*")) == ["out.jsonl", "out.jsonl.journal"]


async def test_a_file_that_is_not_ours_is_never_touched(bench):
    bench.out.write_text("my notes\n")
    for _ in range(2):
        with pytest.raises(BatchError, match="move this one away"):
            await finish(bench, 1)
    assert bench.out.read_text() == "my notes\n"
    assert bench.server.count == 0


async def test_lost_records_are_missed(bench):
    await finish(bench, 1, 2)
    for rest in (bench.out.read_bytes()[:-10], b""):
        bench.out.write_bytes(rest)
        with pytest.raises(BatchError, match="has lost records"):
            await finish(bench, 1, 2)
    bench.out.unlink()
    with pytest.raises(BatchError, match="has lost records"):
        await finish(bench, 1, 2)
    assert bench.server.count == 2


async def test_a_journal_that_is_none_is_refused(bench):
    await finish(bench, 1)
    bench.folder.joinpath("out.jsonl.journal").write_bytes(b"something else altogether" * 100)
    with pytest.raises(BatchError, match="is damaged"):
        await finish(bench, 1)


async def mixed(bench):
    bench.replies = {2: "no", 4: Reply.error(400, "no such thing")}
    path = bench.file(task(1), task(2), "nonsense", task(4), {"task": "Name number 5."})
    async with bench.agent(evaluator_model="none") as agent:
        bench.server.default("none", "nothing that a score could be read from")
        await run(agent.run_batch(path, out=bench.out))
    return [record["status"] for record in bench.written()]


async def test_the_records_have_the_same_fields_and_types_whatever_came_of_the_task(bench):
    found = await mixed(bench)
    assert found == ["passed", "failed", "error", "error", "unscored"]
    records = bench.written()
    assert {tuple(record) for record in records} == {tuple(records[0])}
    for name in records[0]:
        kinds = {type(record[name]) for record in records} - {type(None)}
        assert len(kinds) <= 1, name


async def test_pandas_reads_the_records_as_they_are(bench):
    found = await mixed(bench)
    frame = pd.read_json(bench.out, lines=True)
    assert list(frame["status"]) == found
    assert list(frame["line"]) == [1, 2, 3, 4, 5]
    assert frame["passed"].dtype == bool
    assert frame["score"].dtype == float
    assert frame["tokens"].dtype == int
    assert frame["duration_s"].dtype == float
    assert frame["score"].isna().tolist() == [False, False, True, True, True]
    assert frame.loc[0, "attempts"][0]["answer"] == "Answer: 1."


async def test_duckdb_reads_the_records_as_they_are(bench):
    found = await mixed(bench)
    table = f"read_json_auto('{bench.out}')"
    rows = duckdb.sql(f"SELECT status, id FROM {table} ORDER BY line").fetchall()
    assert [status for status, _ in rows] == found
    kinds = dict(duckdb.sql(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {table})").fetchall())
    assert kinds["passed"] == "BOOLEAN"
    assert kinds["tokens"] == "BIGINT"
    assert kinds["score"] == "DOUBLE"
    assert (kinds["id"], kinds["answer"], kinds["error"]) == ("VARCHAR",) * 3
    (answers,) = duckdb.sql(
        f"SELECT list(a.answer) FROM (SELECT unnest(attempts) AS a FROM {table} WHERE status = 'passed')"
    ).fetchall()
    assert answers == (["Answer: 1."],)
    assert duckdb.sql(f"SELECT sum(usage.prompt_tokens) > 0 FROM {table}").fetchall() == [(True,)]


async def test_a_batch_without_a_file_writes_nothing(bench):
    before = sorted(bench.folder.iterdir())
    async with bench.agent("memory://") as agent:
        await run(agent.run_batch([task(1), task(2)]))
    assert sorted(bench.folder.iterdir()) == before


async def test_an_answer_in_any_script_comes_back_as_it_was(bench):
    bench.replies = {1: 'Antwort: 数 \u2028 \U0001f600 \\ " \n 1.'}
    await finish(bench, 1)
    (record,) = bench.written()
    assert record["answer"] == bench.replies[1]
    assert len(bench.out.read_bytes().splitlines()) == 1
    assert json.loads(bench.out.read_bytes())["answer"] == bench.replies[1]
