"""The index of an SQLite store: which items have a text to be found by, the words in it, and where its vector is.

Everything here runs on a plain connection, in a thread, in a transaction of the caller: the index of an item is
written in the item's own. The number of a document holds its scope, so that words too are only looked for there.
"""

import math
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Final

import numpy as np

from reflexion.memory import cells
from reflexion.memory.cells import Cells, Vectors
from reflexion.memory.likeness import rank

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS search_scopes (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, layout INTEGER)",
    """CREATE TABLE IF NOT EXISTS search_documents (
        id INTEGER PRIMARY KEY, prefix TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL, cell INTEGER,
        UNIQUE (prefix, key)
    )""",
    "CREATE INDEX IF NOT EXISTS search_waiting ON search_documents (id) WHERE cell IS NULL",
    "CREATE TABLE IF NOT EXISTS search_facts (name TEXT PRIMARY KEY, value BLOB)",
    """CREATE VIRTUAL TABLE IF NOT EXISTS search_words USING fts5(
        text, content='search_documents', content_rowid='id', columnsize=0,
        tokenize='porter unicode61 remove_diacritics 2'
    )""",
    *cells.TABLES,
)

SCOPE_PARTS: Final = 3
"""Parts of a namespace that make its scope: ("reflexion", "lessons", label). What comes after them is only a filter."""
LONGEST_TEXT: Final = 4_000
"""Characters of an item's text, and of a query, that are looked at."""
MOST_WORDS: Final = 64
"""Different words of a query that are looked up."""
COMMON: Final = 250
"""Documents with a word that are looked at, the newest ones."""
TELLING: Final = 8
"""Words of a query that are searched for: the rarest."""
RANKED: Final = 50
"""Documents with the query's words that are compared with it letter by letter, where there are no vectors."""

_ROOM: Final = 1 << 40
"""Documents in a scope."""
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Change:
    """What an item is found by from now on; nothing where the text is None."""

    prefix: str
    key: str
    text: str | None
    vector: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A query within a namespace, dots between its parts. Without a vector it is answered by words alone."""

    namespace: tuple[str, ...]
    text: str
    vector: Vectors | None
    limit: int


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that answers a query."""

    prefix: str
    key: str
    score: float


class Index:
    """What is found by what. It is used by one thread at a time."""

    def __init__(self, vectors: Cells) -> None:
        self._cells = vectors

    def known(self, connection: sqlite3.Connection, prefix: str, key: str) -> tuple[str, bool] | None:
        """The text by which an item is found, and whether its vector is there, too."""
        row = connection.execute(_FIND, (prefix, key)).fetchone()
        return (row[2], row[1] is not None) if row else None

    def write(self, connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
        """Bring the index in line with items that are written in the same transaction; of one, the last counts."""
        added: dict[int, Vectors] = {}
        for change in {(each.prefix, each.key): each for each in changes}.values():
            row = connection.execute(_FIND, (change.prefix, change.key)).fetchone()
            if row and row[2] != change.text:
                self._remove(connection, *row)
                row = None
            if change.text is None:
                continue
            document = row[0] if row else _insert(connection, change.prefix, change.key, change.text)
            if change.vector is not None and (row is None or row[1] is None):
                added[document] = change.vector
        self._add(connection, added)

    def waiting(self, connection: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, str]]:
        """Documents without a vector, in order of their numbers, with their texts."""
        statement = "SELECT id, text FROM search_documents WHERE cell IS NULL AND id > ? ORDER BY id LIMIT ?"
        return connection.execute(statement, (after, limit)).fetchall()

    def add_vectors(self, connection: sqlite3.Connection, vectors: Mapping[int, tuple[str, Vectors]]) -> int:
        """Give documents their vectors, as far as they still have none and the text for which it was made."""
        statement = "SELECT 1 FROM search_documents WHERE id=? AND text=? AND cell IS NULL"
        added = {
            document: vector
            for document, (text, vector) in vectors.items()
            if connection.execute(statement, (document, text)).fetchone()
        }
        self._add(connection, added)
        return len(added)

    def size(self, connection: sqlite3.Connection) -> int:
        """How many items are in it."""
        return int(connection.execute("SELECT count(*) FROM search_documents").fetchone()[0])

    def empty(self, connection: sqlite3.Connection) -> bool:
        """Whether no item is in it."""
        return connection.execute("SELECT 1 FROM search_documents LIMIT 1").fetchone() is None

    def restart(self, connection: sqlite3.Connection, *, vectors: bool) -> None:
        """Forget what belongs to no item any more, take the words from the texts anew, and maybe forget all vectors."""
        gone = connection.execute(
            "SELECT id, cell, text FROM search_documents AS d WHERE NOT EXISTS "
            "(SELECT 1 FROM store WHERE store.prefix = d.prefix AND store.key = d.key)"
        ).fetchall()
        for row in gone:
            self._remove(connection, *row)
        if vectors:
            self._cells.clear(connection)
        connection.execute("INSERT INTO search_words (search_words) VALUES ('rebuild')")

    def scrub(self, connection: sqlite3.Connection) -> None:
        """Drop the words of deleted items, which lie in older parts of the full-text index until these are merged."""
        connection.execute("INSERT INTO search_words (search_words) VALUES ('optimize')")

    def search(self, connection: sqlite3.Connection, asked: Asked) -> list[Hit]:
        """The likest items, the likest first: what means the like and what says the like, chosen by turns."""
        inside = _inside(connection, asked.namespace) if len(asked.namespace) > SCOPE_PARTS else None
        scopes = _scopes(connection, asked.namespace)
        if inside is not None:
            meant = self._compare(connection, asked.vector, list(inside))
        elif asked.vector is not None:
            found = (self._cells.nearest(connection, scope, asked.vector, asked.limit) for scope in scopes)
            meant = {document: cosine for each in found for cosine, document in each}
        else:
            meant = {}
        said = worded(connection, scopes, asked.text, max(asked.limit, RANKED), inside)
        if asked.vector is None:
            return self._scored(connection, asked, said, {})
        likest = sorted(meant, key=lambda document: -meant[document])[: asked.limit]
        by_turns = (document for pair in zip_longest(likest, said) for document in pair if document is not None)
        return self._scored(connection, asked, list(dict.fromkeys(by_turns))[: asked.limit], meant)

    def _scored(
        self, connection: sqlite3.Connection, asked: Asked, documents: Sequence[int], cosines: Mapping[int, float]
    ) -> list[Hit]:
        statement = "SELECT prefix, key, text FROM search_documents WHERE id=?"
        places = {each: connection.execute(statement, (each,)).fetchone() for each in documents}
        scores = dict(cosines)
        scores |= self._compare(connection, asked.vector, [each for each in documents if each not in scores])
        unseen = [each for each in documents if each not in scores]
        scores |= dict(zip(unseen, rank(asked.text, [places[each][2] for each in unseen]), strict=True))
        hits = [Hit(places[each][0], places[each][1], scores[each]) for each in documents]
        return sorted(hits, key=lambda hit: -hit.score)[: asked.limit]

    def _compare(
        self, connection: sqlite3.Connection, vector: Vectors | None, documents: Sequence[int]
    ) -> dict[int, float]:
        if vector is None:
            return {}
        statement = "SELECT cell FROM search_documents WHERE id=? AND cell IS NOT NULL"
        rows = ((each, connection.execute(statement, (each,)).fetchone()) for each in documents)
        return self._cells.cosines(connection, [(each // _ROOM, row[0], each) for each, row in rows if row], vector)

    def _add(self, connection: sqlite3.Connection, vectors: Mapping[int, Vectors]) -> None:
        for scope, documents in groupby(sorted(vectors), key=lambda document: document // _ROOM):
            ids = list(documents)
            self._cells.add(connection, scope, ids, np.stack([vectors[each] for each in ids]))

    def _remove(self, connection: sqlite3.Connection, document: int, cell: int | None, text: str) -> None:
        if cell is not None:
            self._cells.remove(connection, document // _ROOM, cell, document)
        connection.execute(
            "INSERT INTO search_words (search_words, rowid, text) VALUES ('delete', ?, ?)", (document, text)
        )
        connection.execute("DELETE FROM search_documents WHERE id=?", (document,))


_FIND: Final = "SELECT id, cell, text FROM search_documents WHERE prefix=? AND key=?"


def clean(text: str) -> str:
    """The part of a text that is looked at, without what SQLite takes for the end of a text or cannot hold."""
    return text[:LONGEST_TEXT].replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def bounds(path: str) -> tuple[str, str, str]:
    """The namespace itself, and between what those below it lie: after the dot that ends a part comes the slash."""
    return (path, f"{path}.", f"{path}/")


def _insert(connection: sqlite3.Connection, prefix: str, key: str, text: str) -> int:
    path = ".".join(prefix.split(".")[:SCOPE_PARTS])
    connection.execute("INSERT INTO search_scopes (path, layout) VALUES (?, 0) ON CONFLICT DO NOTHING", (path,))
    (scope,) = connection.execute("SELECT id FROM search_scopes WHERE path=?", (path,)).fetchone()
    statement = "SELECT max(id) FROM search_documents WHERE id BETWEEN ? AND ?"
    (last,) = connection.execute(statement, _span(scope)).fetchone()
    document = int(last or scope * _ROOM) + 1
    connection.execute(
        "INSERT INTO search_documents (id, prefix, key, text) VALUES (?, ?, ?, ?)", (document, prefix, key, text)
    )
    connection.execute("INSERT INTO search_words (rowid, text) VALUES (?, ?)", (document, text))
    return document


def _span(scope: int) -> tuple[int, int]:
    return scope * _ROOM, (scope + 1) * _ROOM - 1


def _scopes(connection: sqlite3.Connection, namespace: tuple[str, ...]) -> list[int]:
    if not namespace:
        rows = connection.execute("SELECT id FROM search_scopes")
    elif len(namespace) >= SCOPE_PARTS:
        rows = connection.execute("SELECT id FROM search_scopes WHERE path=?", (".".join(namespace[:SCOPE_PARTS]),))
    else:
        rows = connection.execute(
            "SELECT id FROM search_scopes WHERE path = ? OR (path > ? AND path < ?)", bounds(".".join(namespace))
        )
    return [row[0] for row in rows]


def _inside(connection: sqlite3.Connection, namespace: tuple[str, ...]) -> set[int]:
    statement = (
        "SELECT id FROM search_documents WHERE prefix = ? OR (prefix > ? AND prefix < ?) ORDER BY id DESC LIMIT ?"
    )
    return {row[0] for row in connection.execute(statement, (*bounds(".".join(namespace)), cells.READ))}


def worded(
    connection: sqlite3.Connection, scopes: Sequence[int], text: str, limit: int, inside: set[int] | None = None
) -> list[int]:
    """The documents that share the most telling words with a text, the best first.

    A word tells the more, the fewer documents hold it. Of a common word only the newest documents are looked at, and
    how close together these lie tells how common it is: so no word costs more than another.
    """
    words = list(dict.fromkeys(_WORD.findall(clean(text).casefold())))[:MOST_WORDS]
    weights: dict[int, float] = {}
    for scope in scopes:
        first, last = _span(scope)
        newest = connection.execute("SELECT max(id) FROM search_documents WHERE id <= ?", (last,)).fetchone()[0]
        counted = []
        for word in words:
            count, oldest = connection.execute(_SPREAD, (f'"{word}"', first, last, COMMON)).fetchone()
            if count:
                holding = count / (newest - oldest + 1) if count == COMMON else count / (newest - first + 1)
                counted.append((holding, word))
        for holding, word in sorted(counted)[:TELLING]:
            for (document,) in connection.execute(_HAVING, (f'"{word}"', first, last, COMMON)):
                weights[document] = weights.get(document, 0.0) + math.log(1 + 1 / holding)
    found = [document for document in weights if inside is None or document in inside]
    return sorted(found, key=lambda document: (-weights[document], -document))[:limit]


_HAVING: Final = (
    "SELECT rowid FROM search_words WHERE search_words MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?"
)
_SPREAD: Final = (
    "SELECT count(*), min(rowid) FROM (SELECT rowid FROM search_words WHERE search_words MATCH ? "
    "AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)"
)
