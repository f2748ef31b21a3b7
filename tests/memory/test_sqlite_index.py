"""What the SQLite store finds, in real files."""

import asyncio
import contextlib
import logging
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from hashed import Hashed
from indexing import BATCH, NAMESPACE, task
from langgraph.store.base import PutOp, SearchOp
from langgraph.store.sqlite.aio import AsyncSqliteStore

from reflexion.memory import open_persistence

PROGRAM = Path(__file__).parent / "indexing.py"
HERE = ("reflexion", "lessons", "here")
SUM, SORT, PRIME = "Sum a list of numbers.", "Sort the words of a sentence.", "Is the xylophone in tune?"


async def write(store: Any, namespace: tuple[str, ...], *tasks: str) -> None:
    await store.abatch([PutOp(namespace, each, {"task": each}, index=["task"]) for each in tasks])


async def found(store: Any, query: str, namespace: tuple[str, ...] = HERE, limit: int = 10) -> list[str]:
    items = await store.asearch(namespace, query=query, limit=limit)
    assert all(isinstance(item.score, float) for item in items)
    return [item.value["task"] for item in items]


def check(url: str) -> int:
    """Every document is an item, has its words and lies in its cell; returns how many there are."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("INSERT INTO search_words (search_words, rank) VALUES ('integrity-check', 1)")
        documents = "SELECT id, id >> 40, cell, prefix, key FROM search_documents"
        vectors = connection.execute("SELECT id, scope, cell FROM search_vectors").fetchall()
        sizes = dict(connection.execute("SELECT cell || '/' || scope, size FROM search_cells"))
        items = set(connection.execute("SELECT prefix, key FROM store"))
        rows = connection.execute(documents).fetchall()
        assert {row[:3] for row in rows} == set(vectors)
        assert {row[3:] for row in rows} <= items
        for _, scope, cell in vectors:
            sizes[f"{cell}/{scope}"] -= 1
        assert set(sizes.values()) <= {0}
        return len(rows)


async def test_a_task_is_found_by_what_it_means(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        await write(database.store, HERE, SORT, PRIME, SUM)
        assert (await found(database.store, "Total integers", limit=1)) == [SUM]


async def test_a_task_is_found_by_a_rare_word_that_the_model_makes_nothing_of(sqlite_url):
    model = Hashed()
    model._vector = lambda text, vector=model._vector: vector(text.replace("xylophone", ""))  # type: ignore[method-assign]
    async with open_persistence(sqlite_url, embeddings=model) as database:
        await write(database.store, HERE, PRIME, *(f"Sort words and tune {n}" for n in range(20)))
        items = await database.store.asearch(HERE, query="Sort words: xylophones", limit=4)
        (hit,) = [item for item in items if item.value["task"] == PRIME]
        assert hit.score == pytest.approx(model.cosine("Sort words: xylophones", PRIME), abs=0.01)


async def test_the_score_is_the_cosine_and_the_likest_come_first(sqlite_url):
    model = Hashed()
    async with open_persistence(sqlite_url, embeddings=model) as database:
        await write(database.store, HERE, SUM, SORT, PRIME)
        items = await database.store.asearch(HERE, query="Sum the words.")
        assert [item.score for item in items] == sorted((item.score for item in items), reverse=True)
        for item in items:
            assert item.score == pytest.approx(model.cosine("Sum the words.", item.value["task"]), abs=0.01)
        (same, *_) = await database.store.asearch(HERE, query=SUM)
        assert same.score == pytest.approx(1, abs=0.01)


async def test_pages_of_a_search_follow_each_other(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        await write(database.store, HERE, SUM, SORT, PRIME)
        first, second = [await database.store.asearch(HERE, query=SUM, limit=1, offset=n) for n in (0, 1)]
        assert [item.value["task"] for item in first] == [SUM]
        assert second
        assert second[0].value["task"] != SUM


async def test_without_a_model_words_decide(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=False) as database:
        await write(database.store, HERE, SUM, SORT, PRIME)
        items = await database.store.asearch(HERE, query="Sum up a list.")
        assert items[0].value["task"] == SUM
        assert 0 < items[0].score < 1
        (same, *_) = await database.store.asearch(HERE, query=SUM)
        assert same.score == pytest.approx(1)
        assert await found(database.store, "Total") == []


async def test_words_that_all_tasks_share_still_find(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=False) as database:
        await write(database.store, HERE, *(f"write a function {n}" for n in range(300)), "write a function")
        assert (await found(database.store, "a function write"))[0] == "write a function"


LABELS = ["a", "ab", "A", "a%2Eb", "a-", "a[", "ä"]


@pytest.mark.parametrize("embeddings", [Hashed(), False], ids=["meaning", "words"])
async def test_a_namespace_never_sees_another(sqlite_url, embeddings):
    async with open_persistence(sqlite_url, embeddings=embeddings) as database:
        for label in LABELS:
            await write(database.store, ("reflexion", "lessons", label, "key"), f"{SUM} {label}")
            await write(database.store, ("reflexion", "lessons", label, "key2"), f"{SUM} {label} two")
        await write(database.store, ("reflexion", "other"), f"{SUM} other")
        for label in LABELS:
            assert set(await found(database.store, SUM, ("reflexion", "lessons", label))) == {
                f"{SUM} {label}",
                f"{SUM} {label} two",
            }
            assert await found(database.store, SUM, ("reflexion", "lessons", label, "key")) == [f"{SUM} {label}"]
        assert await found(database.store, SUM, ("reflexion", "lessons", "b")) == []
        assert await found(database.store, SUM, ("reflexion", "lesson")) == []
        assert await found(database.store, SUM, ("reflexion", "other")) == [f"{SUM} other"]
        assert len(await found(database.store, SUM, ("reflexion", "lessons"), 50)) == 2 * len(LABELS)
        assert len(await found(database.store, SUM, (), 50)) == 2 * len(LABELS) + 1


async def test_what_is_deleted_or_no_longer_indexed_is_not_found(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        await write(database.store, HERE, SUM, SORT, PRIME)
        await database.store.adelete(HERE, SUM)
        await database.store.aput(HERE, SORT, {"task": SORT}, index=False)
        assert await found(database.store, SUM) == [PRIME]
        await database.store.adelete(HERE, PRIME)
        assert await found(database.store, SUM) == []
        await write(database.store, HERE, SUM)
        assert await found(database.store, SUM) == [SUM]
    assert check(sqlite_url) == 1


async def test_an_item_is_found_by_its_present_text_and_embedded_only_when_that_changes(sqlite_url):
    model = Hashed()
    async with open_persistence(sqlite_url, embeddings=model) as database:
        await database.store.aput(HERE, "k", {"task": SUM, "used": 0}, index=["task"])
        await database.store.aput(HERE, "k", {"task": SUM, "used": 1}, index=["task"])
        assert model.given.count(SUM) == 1
        (item,) = await database.store.asearch(HERE, query=SUM)
        assert item.value["used"] == 1
        await database.store.aput(HERE, "k", {"task": PRIME}, index=["task"])
        (item,) = await database.store.asearch(HERE, query="xylophone")
        assert item.value == {"task": PRIME}
    async with open_persistence(sqlite_url, embeddings=False) as database:
        assert await found(database.store, SUM.replace("list", "")) == []
    assert check(sqlite_url) == 1


async def test_one_batch_may_read_search_write_and_write_again(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        await write(database.store, HERE, SUM)
        results = await database.store.abatch(
            [
                SearchOp(HERE, query=SUM),
                PutOp(HERE, "k", {"task": SORT}, index=["task"]),
                PutOp(HERE, "k", {"task": PRIME}, index=["task"]),
                SearchOp(HERE),
            ]
        )
        assert [len(each or []) for each in results] == [1, 0, 0, 1]
        assert await found(database.store, "xylophone", limit=1) == [PRIME]
    assert check(sqlite_url) == 2


async def test_a_batch_that_fails_leaves_nothing_in_the_index(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        bad = PutOp(HERE, "bad", {"task": SORT, "no JSON": object()}, index=["task"])
        with pytest.raises(TypeError):
            await database.store.abatch([PutOp(HERE, "good", {"task": SUM}, index=["task"]), bad])
        assert await found(database.store, SUM) == []
        await write(database.store, HERE, SUM)
    assert check(sqlite_url) == 1


async def test_a_write_that_is_cancelled_is_there_wholly_or_not_at_all(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        for turns in range(12):
            writing = asyncio.create_task(write(database.store, HERE, f"{SUM} {turns}", f"{SORT} {turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing
            there = [await database.store.aget(HERE, f"{each} {turns}") for each in (SUM, SORT)]
            assert (there[0] is None) == (there[1] is None)
        await write(database.store, HERE, PRIME)
        assert await found(database.store, "xylophone", limit=1) == [PRIME]
        items = len(await database.store.asearch(HERE, limit=100))
    assert check(sqlite_url) == items


HOSTILE = [
    "NEAR(", '"', '""" OR "', "text : sum", "sum AND NOT OR", "sum*", "^sum", "{sum} - sum", "(((", "a\0b sum", "\0",
    "🎻", "𞤀𞤁𞤂x𞤃", "na\u0301ıve sum", "\ud800 sum", "对列表求和", "?", "", "   ", "the a of", "%s %d {}",
    "'; DROP TABLE store; --", "word " * 20_000, "x" * 100_000, "-" * 100_000,
    " ".join(f"w{n}" for n in range(20_000)),
]  # fmt: skip


@pytest.mark.parametrize("embeddings", [Hashed(), False], ids=["meaning", "words"])
async def test_no_text_of_a_query_is_syntax(sqlite_url, embeddings):
    async with open_persistence(sqlite_url, embeddings=embeddings) as database:
        await write(database.store, HERE, SUM, SORT, PRIME)
        for query in HOSTILE:
            assert len(await database.store.asearch(HERE, query=query)) <= 3, query
        for query in ('"sum" NEAR(', "sum\0", "\ud800 SUM:*"):
            assert SUM in await found(database.store, query), query


async def test_no_text_of_an_item_harms_the_index(sqlite_url):
    tasks = [each for each in HOSTILE if each.strip() and "\ud800" not in each]
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        for number, each in enumerate(tasks):
            await database.store.aput(HERE, str(number), {"task": each}, index=["task"])
        assert check(sqlite_url) == len(tasks)
        for number in range(len(tasks)):
            await database.store.adelete(HERE, str(number))
    assert check(sqlite_url) == 0


async def test_a_model_that_fails_loses_no_item_and_is_made_up_for_later(sqlite_url, caplog):
    model = Hashed()
    model.failing = True
    async with open_persistence(sqlite_url, embeddings=model) as database:
        await write(database.store, HERE, SUM)
        await write(database.store, HERE, SORT)
        assert (await database.store.aget(HERE, SUM)) is not None
        assert await found(database.store, "Sum list") == [SUM]
    assert [record.levelno for record in caplog.records if "embedding model fails" in record.message] == [
        logging.WARNING
    ]
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        assert await found(database.store, "Total integers", limit=1) == [SUM]
    assert check(sqlite_url) == 2


@pytest.mark.parametrize("other", [Hashed(seed="other"), Hashed(dimensions=32)], ids=["vectors", "dimensions"])
async def test_another_model_is_noticed_and_its_index_made_anew_on_request(sqlite_url, caplog, other):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        await write(database.store, HERE, SUM, SORT)
    async with open_persistence(sqlite_url, embeddings=other) as database:
        assert await found(database.store, "Total integers") == []
        assert await found(database.store, "Sum list") == [SUM]
        await write(database.store, HERE, PRIME)
        assert sum("reflexion memory reindex" in record.message for record in caplog.records) == 1
        assert await database.store.areindex() == 3  # type: ignore[attr-defined]
        (first, *_) = await database.store.asearch(HERE, query="Total integers")
        assert first.value["task"] == SUM
        assert first.score == pytest.approx(other.cosine("Total integers", SUM), abs=0.01)
    assert check(sqlite_url) == 3
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        assert await found(database.store, "Total integers") == []


async def test_lessons_from_before_the_index_are_indexed_when_the_database_is_opened(sqlite_url):
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    path.parent.mkdir()
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        store = AsyncSqliteStore(connection)
        await store.setup()
        await store.abatch(
            [PutOp(HERE, str(n), {"task": f"{SUM} {n}", "text": "Check."}) for n in range(600)]
            + [PutOp((*HERE[:2], "default"), "old", {"task": PRIME}), PutOp(HERE, "none", {"text": "no task"})]
            + [PutOp(("reflexion", "experiences", "here"), "e", {"task": SUM})]
        )
    model = Hashed()
    async with open_persistence(sqlite_url, embeddings=model) as database:
        assert await found(database.store, "Total integers 77", limit=1) == [f"{SUM} 77"]
        assert await found(database.store, "xylophone", (*HERE[:2], "default")) == [PRIME]
        assert await found(database.store, SUM, ("reflexion", "experiences")) == []
    assert check(sqlite_url) == 601
    given = len(model.given)
    async with open_persistence(sqlite_url, embeddings=model):
        assert len(model.given) == given


async def test_a_reindex_takes_up_what_was_missing_and_drops_what_is_gone(sqlite_url):
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        await write(database.store, HERE, SUM, SORT)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.execute("DELETE FROM store WHERE key = ?", (SORT,))
        connection.execute(
            "INSERT INTO store (prefix, key, value) VALUES ('reflexion.lessons.here', 'new', ?)",
            (f'{{"task": "{PRIME}"}}'.encode(),),
        )
        connection.commit()
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        assert SORT not in await found(database.store, SORT)
        assert await database.store.areindex() == 2  # type: ignore[attr-defined]
        assert await found(database.store, "xylophone", limit=1) == [PRIME]
    assert check(sqlite_url) == 2


@pytest.fixture
def start(sqlite_url):
    """Start processes that write a batch for every line that they are told."""
    running = []

    def begin(name: str) -> subprocess.Popen:
        command = [sys.executable, str(PROGRAM), sqlite_url, name]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait(timeout=60)
        process.stdin.close()
        process.stdout.close()


def tell(process: subprocess.Popen, batches: int) -> None:
    process.stdin.write("go\n" * batches)
    process.stdin.flush()


async def test_two_processes_that_write_at_once_are_both_found(sqlite_url, start):
    both = {name: start(name) for name in ("one", "two")}
    for process in both.values():
        tell(process, 60)
        process.stdin.close()
    assert [process.wait(timeout=240) for process in both.values()] == [0, 0]
    assert check(sqlite_url) == 2 * 60 * BATCH
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
        for name in both:
            for number in range(0, 60 * BATCH, 23):
                assert await found(database.store, task(name, number), NAMESPACE, 1) == [task(name, number)]


async def test_items_and_index_agree_after_a_kill_at_any_moment(sqlite_url, start):
    written = 0
    for name in ("a", "b", "c"):
        process = start(name)
        tell(process, 40)
        for batch in range(30):
            assert process.stdout.readline() == f"{batch}\n"
        process.kill()
        process.wait(timeout=60)
        async with open_persistence(sqlite_url, embeddings=Hashed()) as database:
            last = task(name, 30 * BATCH - 1)
            assert await found(database.store, last, NAMESPACE, 1) == [last]
        written += 30 * BATCH
        assert check(sqlite_url) >= written
