"""Vectors in cells: a search reads the cells nearest to it, so that it costs little more among many than among few.

A scope begins with one cell. A vector goes to the cell with the nearest centre, a cell that has grown too large is
split in two. Where all vectors of a scope are read anyway the search is exact. What is kept of a vector is its
direction, in one byte per dimension: the cosine of two of 384 dimensions is right to about 0.001.
"""

import secrets
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""One vector a row, or one vector."""

LARGEST: Final = 400
"""Vectors beyond which a cell is split."""
READ: Final = 2_000
"""Vectors that a search reads before it stops going to the next cell."""
KNOWN_SCOPES: Final = 32
"""Scopes of which the centres are kept in memory."""

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS search_cells (
        scope INTEGER NOT NULL, cell INTEGER NOT NULL, size INTEGER NOT NULL, centre BLOB NOT NULL,
        PRIMARY KEY (scope, cell)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS search_vectors (
        scope INTEGER NOT NULL, cell INTEGER NOT NULL, id INTEGER NOT NULL, vector BLOB NOT NULL,
        PRIMARY KEY (scope, cell, id)
    ) WITHOUT ROWID""",
)


@dataclass(frozen=True, slots=True)
class _Centres:
    layout: int
    cells: list[int]
    vectors: Vectors


class Cells:
    """The vectors of all scopes in one database, whose tables `search_scopes` and `search_documents` name the cells.

    Used by one thread at a time; each call takes place in a transaction of its caller.
    """

    def __init__(self, largest: int = LARGEST, read: int = READ) -> None:
        self._largest = largest
        self._read = read
        self._centres: OrderedDict[int, _Centres] = OrderedDict()

    def add(self, connection: sqlite3.Connection, scope: int, ids: Sequence[int], vectors: Vectors) -> None:
        """Put vectors of documents of a scope into their cells."""
        centres = self._of(connection, scope)
        if not centres.cells:
            _write_centre(connection, scope, 0, vectors.mean(axis=0))
            self._moved(connection, scope)
            centres = self._of(connection, scope)
        nearest = [np.argmax(_dots(centres.vectors, vector)) for vector in unit(vectors)]
        rows = [(centres.cells[n], each, blob) for n, each, blob in zip(nearest, ids, packed(vectors), strict=True)]
        _insert(connection, scope, rows)
        self._split_the_large(connection, scope, {cell for cell, _, _ in rows})

    def remove(self, connection: sqlite3.Connection, scope: int, cell: int, document: int) -> None:
        """Take the vector of a document out of the cell that it is in."""
        connection.execute("DELETE FROM search_vectors WHERE scope=? AND cell=? AND id=?", (scope, cell, document))
        if _resize(connection, scope, cell, -1) == 0:
            connection.execute("DELETE FROM search_cells WHERE scope=? AND cell=?", (scope, cell))
            self._moved(connection, scope)

    def clear(self, connection: sqlite3.Connection) -> None:
        """Forget all vectors."""
        connection.execute("DELETE FROM search_vectors")
        connection.execute("DELETE FROM search_cells")
        connection.execute("UPDATE search_documents SET cell = NULL WHERE cell IS NOT NULL")
        connection.execute("UPDATE search_scopes SET layout = random()")

    def nearest(
        self, connection: sqlite3.Connection, scope: int, vector: Vectors, limit: int
    ) -> list[tuple[float, int]]:
        """The documents with the likest vectors, each with its cosine, the likest first."""
        centres = self._of(connection, scope)
        asked = unit(vector)
        rows: list[tuple[int, bytes]] = []
        for n in np.argsort(-_dots(centres.vectors, asked)):
            rows += _rows(connection, scope, centres.cells[n])
            if len(rows) >= self._read:
                break
        if not rows:
            return []
        cosines = _cosines([blob for _, blob in rows], asked)
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [(float(cosines[n]), rows[n][0]) for n in best]

    def cosines(
        self, connection: sqlite3.Connection, places: Iterable[tuple[int, int, int]], vector: Vectors
    ) -> dict[int, float]:
        """The cosines of single documents, given by scope, cell and id."""
        statement = "SELECT id, vector FROM search_vectors WHERE scope=? AND cell=? AND id=?"
        rows = [row for place in places if (row := connection.execute(statement, place).fetchone())]
        if not rows:
            return {}
        found = _cosines([blob for _, blob in rows], unit(vector))
        return {row[0]: float(cosine) for row, cosine in zip(rows, found, strict=True)}

    def _split_the_large(self, connection: sqlite3.Connection, scope: int, cells: set[int]) -> None:
        waiting, moved = list(cells), False
        while waiting:
            cell = waiting.pop()
            if _resize(connection, scope, cell, 0) > self._largest:
                waiting += [cell, _split(connection, scope, cell)]
                moved = True
        if moved:
            self._moved(connection, scope)

    def _of(self, connection: sqlite3.Connection, scope: int) -> _Centres:
        row = connection.execute("SELECT layout FROM search_scopes WHERE id=?", (scope,)).fetchone()
        layout = row[0] if row else 0
        known = self._centres.get(scope)
        if known is None or known.layout != layout:
            rows = connection.execute("SELECT cell, centre FROM search_cells WHERE scope=?", (scope,)).fetchall()
            blobs = [blob for _, blob in rows]
            known = _Centres(layout, [cell for cell, _ in rows], unpacked(blobs) if blobs else np.zeros((0, 1), "f4"))
            self._centres[scope] = known
        self._centres.move_to_end(scope)
        if len(self._centres) > KNOWN_SCOPES:
            self._centres.popitem(last=False)
        return known

    def _moved(self, connection: sqlite3.Connection, scope: int) -> None:
        # Drawn, not counted: after a transaction that was rolled back another process would count to the same number.
        connection.execute("UPDATE search_scopes SET layout=? WHERE id=?", (secrets.randbits(62), scope))


def unit(vectors: Vectors) -> Vectors:
    """The same directions with a length of 1."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def packed(vectors: Vectors) -> list[bytes]:
    """Each direction as signed bytes, after the factor (float32) that makes a unit vector of them."""
    peaks = np.abs(vectors).max(axis=1, keepdims=True)
    steps = np.rint(vectors * (127 / np.where(peaks > 0, peaks, 1))).astype(np.int8)
    lengths = np.linalg.norm(steps.astype(np.float32), axis=1)
    rows = np.zeros(len(vectors), _dtype(vectors.shape[1]))
    rows["factor"] = 1 / np.where(lengths > 0, lengths, 1)
    rows["steps"] = steps
    return [row.tobytes() for row in rows]


def unpacked(blobs: Sequence[bytes]) -> Vectors:
    """Unit vectors, one a row, out of what `packed` made of vectors of one length."""
    rows = _joined(blobs)
    return np.asarray(rows["steps"].astype(np.float32) * rows["factor"][:, None])


def _cosines(blobs: Sequence[bytes], direction: Vectors) -> Vectors:
    rows = _joined(blobs)
    return np.asarray(_dots(rows["steps"].astype(np.float32), direction) * rows["factor"])


def _joined(blobs: Sequence[bytes]) -> NDArray[np.void]:
    return np.frombuffer(b"".join(blobs), _dtype(len(blobs[0]) - 4))


def _dots(vectors: Vectors, vector: Vectors) -> Vectors:
    # Not by `@`: that wakes a thread on every core, and where others work there, waits for the last of them to begin.
    return np.asarray(np.einsum("ij,j->i", vectors, vector))


def _dtype(dimensions: int) -> np.dtype[np.void]:
    return np.dtype([("factor", "<f4"), ("steps", "i1", (dimensions,))])


def _rows(connection: sqlite3.Connection, scope: int, cell: int) -> list[tuple[int, bytes]]:
    statement = "SELECT id, vector FROM search_vectors WHERE scope=? AND cell=?"
    return connection.execute(statement, (scope, cell)).fetchall()


def _insert(connection: sqlite3.Connection, scope: int, rows: Sequence[tuple[int, int, bytes]]) -> None:
    rows = sorted(rows, key=lambda row: row[:2])
    values = [(scope, *row) for row in rows]
    connection.executemany("INSERT INTO search_vectors (scope, cell, id, vector) VALUES (?, ?, ?, ?)", values)
    connection.executemany("UPDATE search_documents SET cell=? WHERE id=?", [(cell, each) for cell, each, _ in rows])
    cells = [cell for cell, _, _ in rows]
    for cell in dict.fromkeys(cells):
        _resize(connection, scope, cell, cells.count(cell))


def _resize(connection: sqlite3.Connection, scope: int, cell: int, by: int) -> int:
    if by:
        connection.execute("UPDATE search_cells SET size = size + ? WHERE scope=? AND cell=?", (by, scope, cell))
    row = connection.execute("SELECT size FROM search_cells WHERE scope=? AND cell=?", (scope, cell)).fetchone()
    return int(row[0]) if row else 0


def _write_centre(connection: sqlite3.Connection, scope: int, cell: int, centre: Vectors) -> None:
    connection.execute(
        "INSERT INTO search_cells (scope, cell, size, centre) VALUES (?, ?, 0, ?) "
        "ON CONFLICT (scope, cell) DO UPDATE SET centre = excluded.centre",
        (scope, cell, packed(centre[None])[0]),
    )


def _split(connection: sqlite3.Connection, scope: int, cell: int) -> int:
    """Move a part of a cell's vectors into a new one, whose number is returned."""
    rows = _rows(connection, scope, cell)
    vectors = unpacked([blob for _, blob in rows])
    first = halves(vectors)
    (new,) = connection.execute("SELECT max(cell) + 1 FROM search_cells WHERE scope=?", (scope,)).fetchone()
    moved = [row for row, stays in zip(rows, first, strict=True) if not stays]
    _write_centre(connection, scope, cell, vectors[first].mean(axis=0))
    _write_centre(connection, scope, new, vectors[~first].mean(axis=0))
    connection.executemany(
        "DELETE FROM search_vectors WHERE scope=? AND cell=? AND id=?", [(scope, cell, each) for each, _ in moved]
    )
    _resize(connection, scope, cell, -len(moved))
    _insert(connection, scope, [(new, each, blob) for each, blob in moved])
    return int(new)


ROUNDS: Final = 8
"""Of 2-means: more do not move a boundary that matters."""
SMALLEST_SHARE: Final = 0.125
"""Of a cell that is split off: splitting must not come to nothing, be the vectors all the same."""


def halves(vectors: Vectors) -> NDArray[np.bool_]:
    """Which vectors belong to the first of two groups, by 2-means; the larger group is the first."""
    one = vectors[np.argmin(_dots(vectors, unit(vectors.mean(axis=0))))]
    other = vectors[np.argmin(_dots(vectors, one))]
    for _ in range(ROUNDS):
        lead = _dots(vectors, one - other)
        first = lead > 0
        if not 0 < first.sum() < len(first):
            break
        one, other = unit(vectors[first].mean(axis=0)), unit(vectors[~first].mean(axis=0))
    if not SMALLEST_SHARE <= first.mean() <= 1 - SMALLEST_SHARE:
        first = np.argsort(np.argsort(-lead, kind="stable"), kind="stable") < (len(lead) + 1) // 2
    return first if first.sum() * 2 >= len(first) else ~first
