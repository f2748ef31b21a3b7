"""What the store finds in PostgreSQL, with pgvector and without."""

import asyncio
import hashlib
import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp
from langgraph.store.postgres.aio import AsyncPostgresStore

from reflexion.memory import postgres_index
from reflexion.memory.persistence import open_persistence
from reflexion.memory.places import Places
from reflexion.memory.terms import terms

HERE = Places("here").lessons


SAME = {"total": "sum", "add": "sum"}


class Concepts(Embeddings):
    """Words as vectors, with some that mean the same: each has a few numbers of its own."""

    def __init__(self, dims: int = 384, salt: str = "") -> None:
        self.dims, self.salt = dims, salt
        self.embedded: list[str] = []
        self.fails = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.fails:
            raise ConnectionError("no route to the model")
        self.embedded += texts
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * self.dims
        for word in re.findall(r"\w+", text.casefold()):
            digest = hashlib.blake2b(f"{self.salt}{SAME.get(word, word)}".encode("utf-8", "replace")).digest()
            for i in range(0, 24, 3):
                vector[int.from_bytes(digest[i : i + 2]) % self.dims] += 1 if digest[i + 2] % 2 else -1
        return vector


@pytest.fixture(params=["pgvector", "plain"])
def url(request: pytest.FixtureRequest) -> str:
    """A new database of a server with pgvector, and of one without."""
    return request.getfixturevalue({"pgvector": "pgvector_url", "plain": "postgres_url"}[request.param])


@asynccontextmanager
async def opened(url: str, embeddings: Embeddings | None = None):
    async with open_persistence(url, embeddings=embeddings or Concepts()) as database:
        yield database.store


def put(task: str, key: str = "k", namespace: tuple[str, ...] = HERE, **more: Any) -> PutOp:
    return PutOp(namespace, key, {"task": task, **more}, index=["task"])


async def found(store: Any, query: str, namespace: tuple[str, ...] = HERE, limit: int = 10) -> list[str]:
    items = await store.asearch(namespace, query=query, limit=limit)
    assert all(-1.001 <= item.score <= 1.001 for item in items)
    assert [item.score for item in items] == sorted((item.score for item in items), reverse=True)
    return [item.key for item in items]


async def test_a_task_is_found_by_what_it_means(pgvector_url):
    async with opened(pgvector_url) as store:
        await store.abatch([put("Sum these", "sum"), *(put(f"Sort list {n} upwards", f"k{n}") for n in range(20))])
        (item,) = await store.asearch(HERE, query="total", limit=1)
        assert item.key == "sum"
        assert item.value == {"task": "Sum these"}
        assert 0.5 < item.score < 0.9


async def test_a_task_is_found_by_a_rare_word(url):
    async with opened(url) as store:
        tasks = [put(f"Write a function that sorts the list number {n}", f"k{n}") for n in range(300)]
        await store.abatch([*tasks, put("Write a function that feeds the quagga of the list", "rare")])
        assert (await found(store, "Write me a function about a QUAGGA", limit=4))[0] == "rare"
        assert len(await found(store, "Write me a function about a quagga", limit=4)) == 4


async def test_half_of_the_hits_are_by_words_though_others_mean_more_the_like(pgvector_url):
    async with opened(pgvector_url) as store:
        await store.abatch([put("add total sum", f"m{n}") for n in range(10)])
        await store.abatch([put(f"reckon many other things with page {n}", f"w{n}") for n in range(10)])
        keys = await found(store, "sum reckon", limit=4)
        assert sorted(key[0] for key in keys) == ["m", "m", "w", "w"]


async def test_a_namespace_never_sees_the_tasks_of_another(url):
    labels = ["a", "ab", "A", "a.b", "a%", "a_", "ä", "a\0"]
    async with opened(url) as store:
        await store.abatch(
            [put("Count the zebras", str(n), (*Places(each).lessons, "task")) for n, each in enumerate(labels)]
        )
        for n, label in enumerate(labels):
            assert await found(store, "Count the zebras", Places(label).lessons) == [str(n)]


async def test_any_prefix_of_a_namespace_is_honoured(url):
    async with opened(url) as store:
        await store.abatch([put("Count the zebras", "1", (*HERE, "t1")), put("Count the zebras", "2", (*HERE, "t2"))])
        await store.abatch(
            [put("Count the zebras", "3", Places("there").lessons), put("Count zebras", "4", ("x", "y"))]
        )
        assert await found(store, "zebras", (*HERE, "t1")) == ["1"]
        assert await found(store, "zebras", (*HERE, "t")) == []
        assert sorted(await found(store, "zebras", HERE)) == ["1", "2"]
        assert sorted(await found(store, "zebras", ("reflexion",))) == ["1", "2", "3"]
        assert await found(store, "zebras", ("x",)) == ["4"]
        assert sorted(await found(store, "zebras", ())) == ["1", "2", "3", "4"]


async def test_an_item_is_found_by_its_last_text_alone_and_not_at_all_when_it_is_gone(url):
    async with opened(url) as store:
        await store.abatch([put("Feed the quagga", "one"), put("Feed the quagga", "two"), put("Paint a door", "three")])
        await store.abatch([put("Paint a window", "one"), PutOp(HERE, "two", None)])
        assert await found(store, "quagga", limit=1) != ["one"]
        assert (await found(store, "window"))[0] == "one"
        assert "two" not in await found(store, "Feed the quagga")
        await store.aput(HERE, "one", {"task": "Paint a window"}, index=False)
        assert "one" not in await found(store, "window")


async def test_a_text_that_stays_is_not_embedded_again(pgvector_url):
    embeddings = Concepts()
    async with opened(pgvector_url, embeddings) as store:
        await store.abatch([put("Sum these", "one"), put("Sum these", "two")])
        await store.abatch([put("Sum these", "one", used=1), put("Sum those", "three")])
        assert embeddings.embedded[1:] == ["Sum these", "Sum those"]
        assert (await store.aget(HERE, "one")).value["used"] == 1


async def test_a_small_namespace_beside_a_large_one_gets_all_its_hits(pgvector_url):
    small = Places("small").lessons
    async with opened(pgvector_url, Concepts(dims=32)) as store:
        for page in range(4):
            await store.abatch([put(f"sum number {page} {n}", f"{page}-{n}") for n in range(200)])
        await store.abatch([put(f"zebra {n}", f"s{n}", small) for n in range(20)])
        execute(pgvector_url, "ANALYZE")
        assert len(await found(store, "total", small, limit=20)) == 20
    # The vectors of the large one are all nearer; now they are gone through first.
    execute(pgvector_url, f"ALTER DATABASE {urlsplit(pgvector_url).path[1:]} SET enable_sort = off")
    async with opened(pgvector_url, Concepts(dims=32)) as store:
        assert len(await found(store, "total", small, limit=20)) == 20


async def test_words_that_many_tasks_hold_cost_no_more_and_hide_no_rare_one(url, monkeypatch):
    monkeypatch.setattr(postgres_index, "READ", 120)
    async with opened(url) as store:
        await store.abatch([put("Feed the quagga", "rare")])
        await store.abatch([put(f"Feed the {n} horses", f"k{n}") for n in range(100)])
        assert (await found(store, "Feed the quagga", limit=3))[0] == "rare"
        assert len(await found(store, "feed the", limit=30)) == 30


async def test_writers_at_the_same_time_lose_nothing(url):
    async def write(store: Any, writer: int) -> None:
        for n in range(10):
            await store.abatch(
                [put(f"word{writer}x{n} count", f"{writer}-{n}"), put(f"shared{n} by{writer}", f"shared-{n}")]
            )

    async with opened(url) as one, opened(url) as two:
        await asyncio.gather(write(one, 1), write(two, 2))
        for store in (one, two):
            for writer in (1, 2):
                keys = [(await found(store, f"word{writer}x{n}", limit=1))[0] for n in range(10)]
                assert keys == [f"{writer}-{n}" for n in range(10)]
            for n in range(10):
                (item,) = await store.asearch(HERE, query=f"shared{n}", limit=1)
                assert item.key == f"shared-{n}"
    last = "SELECT count(*) FROM store JOIN reflexion_index USING (prefix, key) WHERE text = value->>'task'"
    assert execute(url, last) == [(30,)]


async def test_no_query_is_syntax(url):
    async with opened(url) as store:
        await store.abatch([put("Count the zebra", "one")])
        for query in (
            "zebra'; DROP TABLE store; --",
            "zebra & !zebra | (zebra <-> :*",
            "zebra\\",
            "zebra\0",
            "zebra\ud800",
            "zebra %s %(terms)s {}",
            "zebra " * 20_000,
            " ".join(f"zebra w{n}" for n in range(5_000)),
        ):
            assert await found(store, query) == ["one"]


async def test_a_query_without_a_word_fails_nothing(url):
    async with opened(url) as store:
        await store.abatch([put("Count the zebra", "one"), put("!", "two")])
        for query in ("\0", " ", "&", "'", "\ud800", "?!"):
            assert set(await found(store, query)) <= {"one", "two"}


async def test_what_postgresql_cannot_hold_is_kept_as_a_sign(url):
    async with opened(url) as store:
        await store.abatch(
            [put("Split at \0 the quagga \ud800", "one", text=["a\0b", {"n\0": None}]), put("Sum", "two")]
        )
        item = await store.aget(HERE, "one")
        assert item.value == {"task": "Split at ␀ the quagga \ufffd", "text": ["a␀b", {"n␀": None}]}
        assert (await found(store, "Split at \0 the quagga \ud800"))[0] == "one"
        assert (await store.aget(HERE, "two")).value == {"task": "Sum"}


async def test_a_batch_that_fails_leaves_neither_items_nor_index(url):
    async with opened(url) as store:
        with pytest.raises(psycopg.Error):
            await store.abatch([put("Count the zebra", "one"), put("Count", "a\0key")])
        assert await store.aget(HERE, "one") is None
        assert await found(store, "zebra") == []
        await store.abatch([put("Count the zebra", "one")])
        assert await found(store, "zebra") == ["one"]


async def test_a_search_with_a_filter_lists_as_before(url):
    async with opened(url) as store:
        await store.abatch([put("Count", "one", state="new"), put("Count", "two", state="old")])
        items = await store.asearch(HERE, query="Count", filter={"state": "old"})
        assert [item.key for item in items] == ["two"]


async def test_pages_of_a_search_do_not_overlap(url):
    async with opened(url) as store:
        await store.abatch([put(f"Count zebra {n}", str(n)) for n in range(9)])
        pages = [await store.asearch(HERE, query="zebra", limit=3, offset=offset) for offset in (0, 3, 6, 9)]
        assert [len(page) for page in pages] == [3, 3, 3, 0]


async def test_embeddings_that_fail_cost_no_lesson_and_are_caught_up_with(pgvector_url, caplog):
    embeddings = Concepts()
    async with opened(pgvector_url, embeddings) as store:
        await store.abatch([put("Sum these", "before")])
        embeddings.fails = True
        await store.abatch([put("Sum those quaggas", "after")])
        assert await found(store, "quaggas") == ["after"]
        assert await found(store, "total") == []
        assert "no route to the model" in caplog.text
        embeddings.fails = False
        assert await found(store, "total") == ["before"]
    async with opened(pgvector_url, embeddings) as store:
        assert sorted(await found(store, "total")) == ["after", "before"]


async def test_embeddings_that_fail_at_the_opening_leave_words(pgvector_url, caplog):
    embeddings = Concepts()
    embeddings.fails = True
    async with opened(pgvector_url, embeddings) as store:
        await store.abatch([put("Sum the quaggas", "one")])
        assert await found(store, "quaggas") == ["one"]
        assert await found(store, "total") == []
    assert "when the database is opened again" in caplog.text
    async with opened(pgvector_url) as store:
        assert await found(store, "total") == ["one"]


@pytest.mark.parametrize("vector", [[1.0], [float("nan")] * 384, [1e308 * 10] * 384, []])
async def test_what_is_no_vector_is_not_taken_for_one(pgvector_url, vector, caplog):
    embeddings = Concepts()
    async with opened(pgvector_url, embeddings) as store:
        embeddings.embed_documents = lambda texts: [vector for _ in texts]  # type: ignore[method-assign]
        await store.abatch([put("Sum the quaggas", "one")])
        assert await found(store, "quaggas") == ["one"]
    assert "found by their words alone" in caplog.text


async def test_a_text_without_a_direction_is_found_by_its_words(pgvector_url):
    embeddings = Concepts()
    async with opened(pgvector_url, embeddings) as store:
        embeddings.embed_documents = lambda texts: [[0.0] * 384 for _ in texts]  # type: ignore[method-assign]
        await store.abatch([put("Sum the quaggas", "one")])
        assert await found(store, "quaggas") == ["one"]


@pytest.mark.parametrize("other", [Concepts(dims=512), Concepts(salt="other")])
async def test_other_embeddings_are_noticed_and_taken_after_a_reindex(pgvector_url, other, caplog):
    async with opened(pgvector_url) as old:
        await old.abatch([put("Sum these quaggas", "one")])
        async with opened(pgvector_url, other) as store:
            warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            assert len(warnings) == 1
            assert "reflexion memory reindex" in warnings[0]
            await store.abatch([put("Sum those", "two")])
            assert await found(store, "quaggas") == ["one"]
            assert await found(store, "total") == []
            assert await store.areindex() == 2
            assert sorted(await found(store, "total")) == ["one", "two"]
            # Whoever still has the old ones open goes on, by words.
            await old.abatch([put("Sum more quaggas", "three")])
            assert sorted(await found(old, "quaggas")) == ["one", "three"]
            assert sorted(await found(store, "total")) == ["one", "two"]
    async with opened(pgvector_url, other) as store:
        assert sorted(await found(store, "total")) == ["one", "three", "two"]


async def test_a_reindex_whose_embeddings_fail_says_so_and_changes_nothing(pgvector_url, caplog):
    embeddings = Concepts()
    async with opened(pgvector_url, embeddings) as store:
        await store.abatch([put("Sum these", "one")])
        embeddings.fails = True
        assert await store.areindex() == 1
        assert "no route to the model" in caplog.text
        embeddings.fails = False
        assert await found(store, "total") == ["one"]


async def test_vectors_too_long_for_an_index_are_compared_one_by_one(pgvector_url):
    async with opened(pgvector_url, Concepts(dims=4_096)) as store:
        await store.abatch([put("Sum these", "one"), put("Sort", "two")])
        assert (await found(store, "total"))[0] == "one"


async def test_a_database_from_before_the_index_is_indexed_once(url):
    async with AsyncPostgresStore.from_conn_string(url) as before:
        await before.setup()
        await before.aput(HERE, "one", {"task": "Sum the quaggas"})
        await before.aput(HERE, "odd", {"task": 7})
        await before.aput(Places("here").episodes, "run", {"task": "Sum the quaggas"})
    embeddings = Concepts()
    async with opened(url, embeddings) as store:
        assert await found(store, "quaggas", ("reflexion",)) == ["one"]
    embedded = len(embeddings.embedded)
    async with opened(url, embeddings) as store:
        assert (await store.aget(HERE, "odd")).value == {"task": 7}
    assert embeddings.embedded[embedded:] == embeddings.embedded[:1]


async def test_without_pgvector_nothing_fails_warns_or_loads_the_model(postgres_url, caplog):
    embeddings = Concepts()
    async with opened(postgres_url, embeddings) as store:
        await store.abatch([put("Sum the quaggas", "one")])
        assert await found(store, "quaggas") == ["one"]
        assert "install it" in store.lacks
        assert await store.areindex() == 1
    assert not caplog.records
    assert not embeddings.embedded


async def test_without_embeddings_words_decide_and_nothing_is_said(url, caplog):
    async with open_persistence(url, embeddings=False) as database:
        await database.store.abatch([put("Sum the quaggas", "one"), put("Sum the zebras", "two")])
        assert await found(database.store, "sum quaggas") == ["one", "two"]
        assert await database.store.areindex() == 2
    assert not caplog.records


@pytest.fixture
def as_user(url: str) -> Iterator[str]:
    """The same database as somebody who may create nothing in it."""
    name = f"user_{uuid.uuid4().hex}"
    execute(url, f"CREATE ROLE {name} LOGIN")
    execute(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    parts = urlsplit(url)
    yield parts._replace(netloc=parts.netloc.replace("postgres", name, 1)).geturl()
    execute(url, f"DROP OWNED BY {name}")
    execute(url, f"DROP ROLE {name}")


def execute(url: str, sql: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


async def test_somebody_who_may_create_nothing_uses_a_database_that_is_set_up(url, as_user, caplog):
    async with opened(url) as store:
        await store.abatch([put("Sum the quaggas", "one")])
    execute(url, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {urlsplit(as_user).username}")
    caplog.clear()
    async with opened(as_user) as store:
        await store.abatch([put("Sum the zebras", "two"), put("Paint", "three"), PutOp(HERE, "three", None)])
        assert (await found(store, "sum quaggas"))[0] == "one"
        assert (await found(store, "sum zebras"))[0] == "two"
    async with opened(url) as store:
        assert (await found(store, "sum zebras"))[0] == "two"


@pytest.mark.parametrize("url", ["pgvector"], indirect=True)
async def test_somebody_who_may_not_create_the_extension_is_told_who_may(url, as_user):
    execute(url, f"GRANT ALL ON SCHEMA public TO {urlsplit(as_user).username}")
    async with opened(as_user) as store:
        await store.abatch([put("Sum the quaggas", "one")])
        assert await found(store, "quaggas") == ["one"]
        assert "let an administrator run CREATE EXTENSION vector" in store.lacks
    execute(url, "CREATE EXTENSION vector")
    async with opened(as_user) as store:
        assert await found(store, "total") == ["one"]


def test_words_are_found_in_other_case_form_and_script():
    def shared(one: str, other: str) -> int:
        return len(set(terms("s", one)) & set(terms("s", other)))

    assert shared("Straße", "STRASSE!") == 2
    assert shared("ﬁnd_the_max", "max, then find") == 2
    assert shared("列表排序", "请把列表倒过来") == 1
    assert shared("Sum", "Total") == 0
    assert not set(terms("a", "Sum")) & set(terms("b", "Sum"))
    assert terms("s", "?!") == []
    assert len(terms("s", " ".join(map(str, range(5_000))))) < 300
