"""Real files, a real PostgreSQL, real processes."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TypedDict

import pytest
from blockbuster import blockbuster_ctx
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import PutOp

from reflexion.memory.persistence import DatabaseError, Persistence, default_database_url, open_persistence


class Count(TypedDict):
    count: int


def counter(database: Persistence) -> Any:
    async def increment(state: Count) -> dict[str, int]:
        return {"count": state["count"] + 1}

    graph = StateGraph(Count)
    graph.add_node("increment", increment)
    graph.add_edge(START, "increment")
    graph.add_edge("increment", END)
    return graph.compile(checkpointer=database.checkpointer, store=database.store)


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_what_was_saved_is_there_after_reopening(durable_url):
    async with open_persistence(durable_url) as database:
        assert database.durable
        await counter(database).ainvoke({"count": 1}, on("t"))
        await database.store.aput(("lessons",), "k", {"text": "Check the empty list first."})
    async with open_persistence(durable_url) as database:
        assert (await counter(database).aget_state(on("t"))).values == {"count": 2}
        item = await database.store.aget(("lessons",), "k")
        assert item is not None
        assert item.value == {"text": "Check the empty list first."}
        assert (await database.size_bytes() or 0) > 10_000


async def test_memory_says_that_it_does_not_last():
    async with open_persistence("memory://") as database:
        await counter(database).ainvoke({"count": 1}, on("t"))
        assert not database.durable
        assert await database.size_bytes() is None
    async with open_persistence("memory://") as database:
        assert (await counter(database).aget_state(on("t"))).values == {}


async def test_nothing_blocks_the_event_loop(database_url):
    with blockbuster_ctx():
        async with open_persistence(database_url) as database:
            async with database.locks.hold("t", wait_s=1):
                await counter(database).ainvoke({"count": 1}, on("t"))
                await database.store.aput(("a",), "k", {"x": 1})
                await database.store.asearch(("a",))
            await database.size_bytes()


WRITER = """
import asyncio, sys
from reflexion.memory.persistence import open_persistence
from langgraph.store.base import GetOp, PutOp
from langgraph.checkpoint.base import empty_checkpoint

async def main(url, name):
    async with open_persistence(url, embeddings=False) as database:
        saver, store = database.checkpointer, database.store
        for number in range(50):
            checkpoint = empty_checkpoint()
            config = {"configurable": {"thread_id": f"{name}-{number}", "checkpoint_ns": ""}}
            config = await saver.aput(config, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {})
            await asyncio.gather(
                saver.aput_writes(config, [("a", "x"), ("b", "y")], "task"),
                store.aget(("shared",), "k"),
                store.aput(("shared",), "k", {"by": name}),
                store.aput((name,), str(number), {"n": number}),
            )

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_set_up_and_write_at_once_never_see_a_locked_database(durable_url):
    writers = [python(WRITER, durable_url, name) for name in ("one", "two", "three")]
    for writer in writers:
        _, errors = await asyncio.to_thread(writer.communicate)
        assert (writer.returncode, errors) == (0, "")
    async with open_persistence(durable_url) as database:
        for name in ("one", "two", "three"):
            assert len(await database.store.asearch((name,), limit=1000)) == 50
        saved = [entry async for entry in database.checkpointer.alist(None)]
        assert len(saved) == 150
        assert all(len(entry.pending_writes or []) == 2 for entry in saved)


async def test_opening_many_times_at_once_in_one_process_works(durable_url):
    async def write(number: int) -> None:
        async with open_persistence(durable_url) as database:
            await database.store.aput(("n",), str(number), {"n": number})

    await asyncio.gather(*map(write, range(8)))
    async with open_persistence(durable_url) as database:
        assert len(await database.store.asearch(("n",), limit=100)) == 8


async def test_a_cancelled_read_does_not_end_the_store(database_url):
    async with open_persistence(database_url) as database:
        await database.store.aput(("a",), "k", {"x": 1})
        for pauses in range(6):
            read = asyncio.create_task(database.store.aget(("a",), "k"))
            for _ in range(pauses):
                await asyncio.sleep(0)
            read.cancel()
            await asyncio.gather(read, return_exceptions=True)
        assert await asyncio.wait_for(database.store.aget(("a",), "k"), 60) is not None


async def test_a_cancelled_save_keeps_no_other_process_from_writing(sqlite_url):
    async with open_persistence(sqlite_url) as database:
        run = counter(database)
        for pause_ms in range(12):
            save = asyncio.create_task(run.ainvoke({"count": 1}, on("t")))
            await asyncio.sleep(pause_ms / 1000)
            save.cancel()
            await asyncio.gather(save, return_exceptions=True)
            await asyncio.to_thread(_write_from_elsewhere, sqlite_url.removeprefix("sqlite:///"))
        assert (await run.ainvoke({"count": 1}, on("t")))["count"] == 2


async def test_each_save_is_whole_however_often_it_is_cancelled(sqlite_url):
    from langgraph.checkpoint.base import empty_checkpoint

    async with open_persistence(sqlite_url) as database:
        for steps in range(40):
            config: Any = {"configurable": {"thread_id": str(steps), "checkpoint_ns": ""}}
            save = asyncio.create_task(database.checkpointer.aput(config, empty_checkpoint(), {}, {}))
            for _ in range(steps):
                await asyncio.sleep(0)
            save.cancel()
            await asyncio.gather(save, return_exceptions=True)
            await asyncio.to_thread(_write_from_elsewhere, sqlite_url.removeprefix("sqlite:///"))


def _write_from_elsewhere(file: str) -> None:
    with contextlib.closing(sqlite3.connect(file, timeout=60)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS other (n)")
        connection.execute("INSERT INTO other VALUES (1)")


async def test_a_failed_save_is_undone_and_the_next_one_works(sqlite_url):
    async with open_persistence(sqlite_url) as database:
        with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other, other:
            other.execute(
                "CREATE TRIGGER no_b BEFORE INSERT ON writes WHEN new.channel = 'b' "
                "BEGIN SELECT RAISE(ABORT, 'no b'); END"
            )
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
        with pytest.raises(sqlite3.IntegrityError):
            await database.checkpointer.aput_writes(config, [("a", 1), ("b", 2)], "first")
        await database.checkpointer.aput_writes(config, [("c", 3)], "second")
        with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other:
            assert other.execute("SELECT channel FROM writes").fetchall() == [("c",)]


async def test_a_failed_batch_is_undone_and_the_next_one_works(sqlite_url):
    async with open_persistence(sqlite_url) as database:
        with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other, other:
            other.execute(
                "CREATE TRIGGER no_bad AFTER INSERT ON store WHEN new.prefix = 'bad' "
                "BEGIN SELECT RAISE(ABORT, 'bad'); END"
            )
        with pytest.raises(sqlite3.IntegrityError):
            await database.store.abatch([PutOp(("good",), "k", {"x": 1}), PutOp(("bad",), "k", {"x": 1})])
        assert await database.store.aget(("good",), "k") is None
        await database.store.aput(("good",), "k", {"x": 2})
        assert await database.store.aget(("good",), "k") is not None


async def test_one_may_write_while_looking_through_the_history(database_url):
    async with open_persistence(database_url) as database:
        run = counter(database)
        await run.ainvoke({"count": 1}, on("t"))
        async with asyncio.timeout(60):
            async for entry in database.checkpointer.alist(on("t")):
                await run.ainvoke({"count": 5}, on("u"))
                assert entry.config["configurable"]["thread_id"] == "t"


async def test_what_was_put_just_before_closing_is_kept(durable_url):
    async with open_persistence(durable_url) as database:
        puts = [asyncio.create_task(database.store.aput(("a",), str(n), {"n": n})) for n in range(5)]
        await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*puts), 60)
    async with open_persistence(durable_url) as database:
        assert len(await database.store.asearch(("a",), limit=10)) == 5


@pytest.mark.parametrize("ending", ["return", "raise", "cancel"])
async def test_closing_leaves_no_task_and_no_thread(database_url, ending):
    async def body() -> None:
        async with open_persistence(database_url) as database:
            await database.store.aput(("a",), "k", {"x": 1})
            await counter(database).ainvoke({"count": 1}, on("t"))
            if ending == "raise":
                raise KeyError("from the body")
            if ending == "cancel":
                ready.set()
                await asyncio.Event().wait()

    ready = asyncio.Event()
    tasks_before, threads_before = asyncio.all_tasks(), set(threading.enumerate())
    task = asyncio.create_task(body())
    if ending == "cancel":
        await ready.wait()
        task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert type(outcome) is {"return": type(None), "raise": KeyError, "cancel": asyncio.CancelledError}[ending]
    assert asyncio.all_tasks() == tasks_before
    left = [t for t in set(threading.enumerate()) - threads_before if not t.name.startswith("asyncio_")]
    for thread in left:
        await asyncio.to_thread(thread.join, 60)
    assert [thread for thread in left if thread.is_alive()] == []


async def test_only_the_user_can_read_the_file(sqlite_url):
    async with open_persistence(sqlite_url) as database:
        await database.store.aput(("a",), "k", {"x": 1})
        file = Path(sqlite_url.removeprefix("sqlite:///"))
        assert file.parent.stat().st_mode & 0o777 == 0o700
        for name in ("", "-wal", "-shm"):
            assert file.with_name(file.name + name).stat().st_mode & 0o077 == 0


async def test_a_relative_path_stands_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_persistence("sqlite:///here.db") as database:
        assert database.url == f"sqlite:///{tmp_path}/here.db"
    assert (tmp_path / "here.db").is_file()


def test_the_default_is_a_file_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_database_url().endswith("reflexion/reflexion.sqlite")
    assert default_database_url().startswith("sqlite:////")


async def refusal(url: str) -> str:
    with pytest.raises(DatabaseError) as caught:
        async with asyncio.timeout(30), open_persistence(url):
            pass
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", ["folder", "garbage", "file as folder", "damaged"])
async def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path, kind):
    target = tmp_path / "x.db"
    if kind == "folder":
        target.mkdir()
        expected = "is a folder, not an SQLite file"
    elif kind == "garbage":
        target.write_text("Dear diary, " * 1000)
        expected = "is no SQLite database: move it away"
    elif kind == "damaged":
        async with open_persistence(f"sqlite:///{target}"):
            pass
        content = bytearray(target.read_bytes())
        content[100:4000] = b"\xff" * 3900
        target.write_bytes(content)
        expected = "is damaged"
    else:
        (tmp_path / "notes").write_text("no folder")
        target = tmp_path / "notes" / "deep" / "x.db"
        expected = "notes is a file, not a folder"
    message = await refusal(f"sqlite:///{target}")
    assert str(target) in message
    assert expected in message


@pytest.mark.parametrize("url", ["mysql://me:hunter2@host/db", "sqlite://", "sqlite:///", "reflexion.db", "postgresql"])
async def test_an_unknown_url_is_refused_with_the_known_forms(url):
    message = await refusal(url)
    assert "sqlite:///relative.db" in message
    assert "hunter2" not in message


async def test_a_postgresql_that_is_down_is_named_without_the_password():
    message = await refusal("postgresql://me:hunter2@127.0.0.1:1/db")
    assert "postgresql://me@127.0.0.1:1/db" in message
    assert "check that the server runs" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("url", ["postgresql://me:hun#ter2@127.0.0.1/db", "postgresql://me:hun/ter2@127.0.0.1:1/db"])
async def test_a_postgresql_url_that_cannot_be_read_shows_no_part_of_the_password(url):
    message = await refusal(url)
    assert "hun" not in message
    assert "ter2" not in message


async def test_a_missing_postgresql_database_is_named(postgres_url):
    message = await refusal(postgres_url + "_missing")
    assert "does not exist" in message
    assert "create it" in message


async def test_a_wrong_postgresql_password_is_named(postgres_url, monkeypatch):
    import psycopg

    async def refuse(**_: Any) -> None:
        raise psycopg.OperationalError('connection failed: password authentication failed for user "me"')

    # The test server trusts everybody, so that the refusal itself is made up.
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", refuse)
    message = await refusal(postgres_url.replace("//postgres@", "//me:hunter2@"))
    assert "check user and password" in message
    assert "hunter2" not in message


async def test_a_postgresql_password_is_not_displayed(postgres_url):
    url = postgres_url.replace("postgres@", "postgres:hunter2@")
    async with open_persistence(url) as database:
        assert "hunter2" not in repr(database)
        assert "hunter2" not in database.url


async def test_a_restart_of_postgresql_loses_no_later_save(postgres_url):
    import psycopg

    async with open_persistence(postgres_url) as database:
        await database.store.aput(("a",), "k", {"x": 1})
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await database.store.aput(("a",), "k", {"x": 2})
        await counter(database).ainvoke({"count": 1}, on("t"))
        async with database.locks.hold("t"):
            pass
