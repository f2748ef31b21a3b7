"""`reflexion threads`: which there are, and how they go."""

import asyncio
import json

import pytest

from reflexion.memory import open_persistence

TASK, RIGHT = "What is 17 * 23?", "Answer: 391"


@pytest.fixture
def work(reflexion, model):
    def run(thread):
        model.script("m", RIGHT)
        assert reflexion("run", TASK, "--expect", "num:391", "--thread", thread).exit_code == 0

    return run


def names(reflexion):
    return [thread["id"] for thread in json.loads(reflexion("threads", "list", "--json").stdout)["threads"]]


def test_threads_are_listed_and_deleted_by_name(reflexion, work):
    assert reflexion("threads", "list").stdout == "0 threads, 0 bytes\n"
    work("one")
    work("two")
    assert names(reflexion) == ["two", "one"]
    *lines, total = reflexion("threads", "list").stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["two", "one"]
    assert total.startswith("2 threads, ")
    assert json.loads(reflexion("threads", "delete", "one", "one", "--json").stdout) == {"threads": 1, "busy": 0}
    assert names(reflexion) == ["two"]


def test_an_unknown_name_deletes_none_of_the_others(reflexion, work):
    work("one")
    done = reflexion("threads", "delete", "one", "another")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "reflexion: there is no thread 'another': `reflexion threads list` shows them\n"
    assert names(reflexion) == ["one"]


def test_old_threads_are_pruned(reflexion, work):
    work("one")
    assert reflexion("threads", "prune", "--days", "1").stdout == "0 threads deleted\n"
    assert reflexion("threads", "prune", "--days", "0", "--keep-last").stdout == (
        "1 threads cut down to their last step\n"
    )
    assert names(reflexion) == ["one"]
    assert reflexion("threads", "prune", "--days", "0").stdout == "1 threads deleted\n"
    assert names(reflexion) == []


def test_a_busy_thread_is_not_deleted(reflexion, work, monkeypatch, tmp_path):
    monkeypatch.setenv("REFLEXION_DATABASE_URL", f"sqlite:///{tmp_path}/here.sqlite")
    work("one")

    async def while_it_is_held():
        async with open_persistence(f"sqlite:///{tmp_path}/here.sqlite") as database, database.locks.hold("one"):
            done = await asyncio.to_thread(reflexion, "threads", "delete", "one")
            return done, await asyncio.to_thread(reflexion, "threads", "prune", "--days", "0")

    deleted, pruned = asyncio.run(while_it_is_held())
    assert deleted.exit_code == 2
    assert "thread 'one' is busy" in deleted.stderr
    assert pruned.stdout == "0 threads deleted; 1 are busy and stay as they are\n"
    assert names(reflexion) == ["one"]
