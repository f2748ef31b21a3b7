"""Vectors in cells, against the same vectors compared one by one."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.memory.cells import Cells, halves, packed, unit, unpacked
from reflexion.memory.sqlite_index import TABLES

SCOPE = 1


def database(path: Path | str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for table in TABLES:
        connection.execute(table)
    connection.execute("INSERT OR IGNORE INTO search_scopes (id, path, layout) VALUES (?, 'here', 0)", (SCOPE,))
    return connection


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(database()) as opened:
        yield opened


def add(cells: Cells, connection: sqlite3.Connection, ids: list[int], vectors: np.ndarray) -> None:
    connection.executemany(
        "INSERT INTO search_documents (id, prefix, key, text) VALUES (?, '', ?, '')", [(each, each) for each in ids]
    )
    cells.add(connection, SCOPE, ids, vectors)


def remove(cells: Cells, connection: sqlite3.Connection, document: int) -> None:
    (cell,) = connection.execute("SELECT cell FROM search_documents WHERE id=?", (document,)).fetchone()
    cells.remove(connection, SCOPE, cell, document)
    connection.execute("DELETE FROM search_documents WHERE id=?", (document,))


def sizes(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT size FROM search_cells")]


@given(st.integers(0, 10**6), st.integers(1, 120), st.integers(1, 40))
def test_a_search_that_reads_everything_is_exact_however_the_cells_were_split(seed, count, batch):
    draw = np.random.default_rng(seed)
    cells = Cells(largest=8, read=1_000)
    vectors = draw.standard_normal((count, 16)).astype(np.float32)
    gone = set(draw.permutation(count)[: count // 3].tolist())
    with closing(database()) as connection:
        for start in range(0, count, batch):
            add(cells, connection, list(range(start, min(start + batch, count))), vectors[start : start + batch])
        for each in gone:
            remove(cells, connection, each)
        asked = draw.standard_normal(16).astype(np.float32)
        found = cells.nearest(connection, SCOPE, asked, 10)
        assert sum(sizes(connection)) == count - len(gone)
        assert all(0 < size <= 8 for size in sizes(connection))
    exact = unit(vectors) @ unit(asked)
    likest = sorted(set(range(count)) - gone, key=lambda n: -exact[n])[:10]
    assert len(found) == len(likest)
    for (cosine, document), right in zip(found, likest, strict=True):
        assert cosine == pytest.approx(exact[document], abs=0.02)
        assert cosine == pytest.approx(exact[right], abs=0.02)


def test_a_search_that_reads_a_part_finds_nearly_all_of_the_likest(connection):
    draw = np.random.default_rng(0)
    themes = draw.standard_normal((60, 32))
    vectors = (themes[draw.integers(60, size=4_000)] + 0.7 * draw.standard_normal((4_000, 32))).astype(np.float32)
    cells = Cells(largest=50, read=400)
    for start in range(0, 4_000, 100):
        add(cells, connection, list(range(start, start + 100)), vectors[start : start + 100])
    assert len(sizes(connection)) > 80
    right = 0
    for asked in vectors[:100] + 0.3 * draw.standard_normal((100, 32)).astype(np.float32):
        likest = set(np.argsort(-(unit(vectors) @ unit(asked)))[:10].tolist())
        right += len(likest & {document for _, document in cells.nearest(connection, SCOPE, asked, 10)})
    assert right >= 900


def test_vectors_that_are_all_the_same_are_split_nevertheless(connection):
    cells = Cells(largest=8, read=16)
    add(cells, connection, list(range(500)), np.ones((500, 4), np.float32))
    assert max(sizes(connection)) <= 8
    found = cells.nearest(connection, SCOPE, np.ones(4, np.float32), 10)
    assert [cosine for cosine, _ in found] == pytest.approx([1] * 10, abs=0.001)


def test_vectors_without_a_direction_are_like_nothing(connection):
    cells = Cells(largest=8)
    add(cells, connection, list(range(20)), np.zeros((20, 4), np.float32))
    assert {cosine for cosine, _ in cells.nearest(connection, SCOPE, np.ones(4, np.float32), 20)} == {0.0}


def test_what_is_packed_keeps_its_direction():
    vectors = np.random.default_rng(1).standard_normal((200, 384)).astype(np.float32)
    assert np.sum(unit(vectors) * unpacked(packed(vectors)), axis=1) == pytest.approx(1, abs=1e-3)
    exact = unit(vectors) @ unit(vectors).T
    assert np.abs(unpacked(packed(vectors)) @ unit(vectors).T - exact).max() < 0.003


def test_halves_are_the_two_groups_that_there_are():
    draw = np.random.default_rng(2)
    one, other = np.eye(16)[0], np.eye(16)[1]
    vectors = np.vstack([one + 0.1 * draw.standard_normal((30, 16)), other + 0.1 * draw.standard_normal((20, 16))])
    assert halves(unit(vectors.astype(np.float32))).tolist() == [True] * 30 + [False] * 20


def test_centres_of_a_transaction_that_was_undone_are_not_used(tmp_path):
    draw = np.random.default_rng(3)
    vectors = draw.standard_normal((200, 8)).astype(np.float32)
    ours, theirs = Cells(largest=10, read=10), Cells(largest=10, read=10)
    with closing(database(tmp_path / "a.db")) as one, closing(database(tmp_path / "a.db")) as other:
        one.execute("BEGIN IMMEDIATE")
        add(ours, one, list(range(100)), vectors[:100])
        ours.nearest(one, SCOPE, vectors[0], 1)
        one.execute("ROLLBACK")
        add(theirs, other, list(range(100, 200)), vectors[100:])
        for asked in vectors:
            assert ours.nearest(one, SCOPE, asked, 3) == theirs.nearest(other, SCOPE, asked, 3)
