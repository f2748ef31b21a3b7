"""One run at a time on a thread: in one process, between processes, and after a kill -9."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from reflexion.memory.locks import POLL_S, FileLocks, ThreadBusy, _acquire, _remove
from reflexion.memory.persistence import open_persistence

HOLDER = """
import asyncio, sys
from reflexion.memory.persistence import open_persistence

async def main(url):
    async with open_persistence(url) as database, database.locks.hold("t"):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(*sys.argv[1:]))
"""


async def holder(url: str) -> asyncio.subprocess.Process:
    """A process that holds the thread until its standard input is closed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, url, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    return process


async def test_a_held_thread_is_busy_and_others_are_not(database_url):
    async with open_persistence(database_url) as database:
        locks = database.locks
        async with locks.hold("t1"), locks.hold("t2"), locks.hold("weird: ../\0\ud800 ß"):
            with pytest.raises(ThreadBusy, match="thread 't1' is busy: another run is working on it"):
                async with locks.hold("t1"):
                    pass
        async with locks.hold("t1"):
            pass


async def test_a_lock_is_free_again_after_an_error(database_url):
    async with open_persistence(database_url) as database:
        with pytest.raises(KeyError):
            async with database.locks.hold("t"):
                raise KeyError
        async with database.locks.hold("t"):
            pass


async def test_two_tasks_take_turns(database_url):
    log = []

    async def work(name: str) -> None:
        async with database.locks.hold("t", wait_s=100):
            log.append((name, "in"))
            await asyncio.sleep(0.02)
            log.append((name, "out"))

    async with open_persistence(database_url) as database:
        await asyncio.gather(*(work(name) for name in "abc"))
    assert len(log) == 6
    assert all(log[i][0] == log[i + 1][0] for i in (0, 2, 4))


async def test_two_agents_in_one_process_exclude_each_other(durable_url):
    async with open_persistence(durable_url) as one, open_persistence(durable_url) as two:
        async with one.locks.hold("t"):
            with pytest.raises(ThreadBusy):
                async with two.locks.hold("t"):
                    pass
        async with two.locks.hold("t"):
            pass


async def test_waiting_ends_with_busy_when_the_time_is_up(database_url):
    async with open_persistence(database_url) as database, database.locks.hold("t"):
        started = asyncio.get_running_loop().time()
        with pytest.raises(ThreadBusy):
            async with database.locks.hold("t", wait_s=0.2):
                pass
        assert asyncio.get_running_loop().time() - started >= 0.2


async def test_cancelling_at_any_moment_leaves_nothing_held(database_url):
    async def work() -> None:
        async with database.locks.hold("t", wait_s=100):
            await asyncio.sleep(0.001)

    async with open_persistence(database_url) as database, open_persistence(database_url) as other:
        for round_number in range(40):
            task = asyncio.create_task(work())
            await asyncio.sleep(round_number / 10_000)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with other.locks.hold("t"):
                pass
            async with database.locks.hold("t"):
                pass


async def test_a_cancelled_wait_leaves_the_holder_alone(database_url):
    async with open_persistence(database_url) as database, database.locks.hold("t"):
        waiting = asyncio.create_task(database.locks.hold("t", wait_s=60).__aenter__())
        await asyncio.sleep(0.15)
        waiting.cancel()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
        with pytest.raises(ThreadBusy):
            async with database.locks.hold("t"):
                pass


async def test_another_process_is_excluded_and_a_wait_outlasts_it(durable_url):
    process = await holder(durable_url)
    async with open_persistence(durable_url) as database:
        with pytest.raises(ThreadBusy):
            async with database.locks.hold("t"):
                pass

        async def hold() -> None:
            async with database.locks.hold("t", wait_s=100):
                pass

        waiting = asyncio.create_task(hold())
        await asyncio.sleep(2 * POLL_S)
        assert not waiting.done()
        assert process.stdin is not None
        process.stdin.close()
        await waiting
    assert await process.wait() == 0


async def test_killing_the_holder_frees_the_thread(durable_url):
    process = await holder(durable_url)
    process.kill()
    await process.wait()
    # PostgreSQL notices the closed connection a moment later.
    async with open_persistence(durable_url) as database, database.locks.hold("t", wait_s=60):
        pass


TAKER = """
import asyncio, os, sys
from reflexion.memory import locks
from reflexion.memory.persistence import open_persistence

locks.POLL_S = 0.001

async def main(url, mark):
    async with open_persistence(url) as database:
        for _ in range(60):
            async with database.locks.hold("t", wait_s=60):
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                await asyncio.sleep(0)
                os.unlink(mark)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_no_two_processes_are_ever_inside_at_once(durable_url, tmp_path):
    takers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", TAKER, durable_url, str(tmp_path / "mark"))
        for _ in range(3)
    ]
    assert [await taker.wait() for taker in takers] == [0, 0, 0]


def test_removing_a_lock_file_never_lets_two_in(tmp_path):
    inside = threading.Lock()
    overlaps = []

    def take() -> None:
        for _ in range(1000):
            lock = FileLock(tmp_path / "t.lock", thread_local=False)
            if _acquire(lock):
                if inside.acquire(blocking=False):
                    time.sleep(0)
                    inside.release()
                else:
                    overlaps.append(lock)
                _remove(lock)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == []


async def test_lock_files_do_not_pile_up(tmp_path):
    locks = FileLocks(tmp_path / "locks")
    for number in range(20):
        async with locks.hold(str(number)):
            assert len(names(tmp_path / "locks")) == 1
    assert names(tmp_path / "locks") == []


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def test_a_held_postgresql_lock_is_taken_again_when_its_connection_broke(postgres_url):
    import psycopg

    async with (
        open_persistence(postgres_url) as one,
        open_persistence(postgres_url) as two,
        one.locks.hold("t"),
    ):
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        async with one.locks.hold("u"):
            pass
        with pytest.raises(ThreadBusy):
            async with two.locks.hold("t"):
                pass
