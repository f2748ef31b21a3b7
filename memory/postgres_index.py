"""The index of the PostgreSQL store: it finds texts by their words, and with pgvector by their meaning, too.

It is derived from the store's items, written in their transactions, and goes with them.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from langgraph.store.base import PutOp, SearchOp, get_text_at_path, tokenize_path
from psycopg import AsyncCursor
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool

from reflexion.memory.likeness import rank
from reflexion.memory.meaning import CAUGHT_UP, Meaning
from reflexion.memory.postgres_sql import Connection, exists, scalar
from reflexion.memory.postgres_vectors import (
    NoVectors,
    known_model,
    need_pgvector,
    start_vectors,
    written,
)
from reflexion.memory.records import LONGEST_TASK
from reflexion.memory.terms import terms

log = logging.getLogger(__name__)

SCOPE_PARTS: Final = 3
"""Parts of a namespace within which a search is fast: the store's, the kind's, and the user's label."""
OLD_ITEMS: Final = "reflexion.lessons"
"""Where items may lie that were written before there was an index; their `task` is indexed once."""
PAGE: Final = 500
"""Texts that are embedded and written together."""
READ: Final = 4_000
"""Entries of words that a search reads, shared evenly by its words: the newest ones of each."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A text to find an item by."""

    prefix: str
    """The namespace as the store writes it."""
    key: str
    text: str
    vector: str | None = None
    """As pgvector writes it."""


class PostgresIndex:
    """The tables `reflexion_index` (a text an item) and `reflexion_words`, and which model the vectors are of."""

    def __init__(self, pool: AsyncConnectionPool[Connection], meaning: Meaning) -> None:
        self._pool = pool
        self._meaning = meaning
        self._model: str | None = None
        """The set of vectors in the table that ours may be compared with; None: by words alone."""
        self.lacks = ""
        """Why the database can hold no vectors, and what to do about it; empty where it can."""

    async def setup(self) -> None:
        """Create the tables where they are missing, index what the store holds already, and catch up with vectors."""
        async with self._pool.connection() as connection:
            if not await exists(connection, "reflexion_index_model"):
                async with connection.transaction():
                    for sql in _CREATE:
                        await connection.execute(sql)
                    await _index_old_items(connection)
            if not self._meaning.available or not await self._has_room(connection) or not await self._meaning.ready():
                return
            try:
                self._model = await known_model(connection, self._meaning)
            except NoVectors as error:
                self._found_lacking(error)
        if self._model is not None and (filled := await self._fill(CAUGHT_UP)):
            log.info("memory: %d tasks more are found by their meaning", filled)

    async def reindex(self) -> int:
        """Embed every text anew with the embeddings of today; returns how many texts are indexed.

        Others read and write meanwhile; they find by words alone until they open the database again. Where the
        embeddings fail, the vectors stay as they are, and what was not embedded by then is found by its words.
        """
        async with self._pool.connection() as connection:
            async with connection.transaction():
                await _index_old_items(connection)
            if self._meaning.available and await self._has_room(connection) and await self._meaning.works():
                async with connection.transaction():
                    self._model = await start_vectors(connection, self._meaning.probe)
        if self._model is not None:
            await self._fill()
        async with self._pool.connection() as connection:
            return int(await scalar(connection, "SELECT count(*) FROM reflexion_index"))

    async def _has_room(self, connection: Connection) -> bool:
        """Whether the database can hold vectors."""
        try:
            await need_pgvector(connection)
        except NoVectors as error:
            self._found_lacking(error)
            return False
        return True

    def _found_lacking(self, error: NoVectors) -> None:
        # Nothing has happened, and each process would say it again: `reflexion doctor` does.
        self.lacks = str(error)
        log.info("memory: tasks are found by their words alone, because %s", error)

    async def entries(self, puts: Iterable[PutOp]) -> list[Entry]:
        """What is to be indexed of these, with the vectors of those texts that are new."""
        entries = [entry for put in puts if (entry := _entry(put)) is not None]
        if self._model is None or not entries:
            return entries
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_KNOWN, [[e.prefix for e in entries], [e.key for e in entries]])
            known = {(row["prefix"], row["key"], row["text"]) for row in await cursor.fetchall()}
        texts = list(dict.fromkeys(e.text for e in entries if (e.prefix, e.key, e.text) not in known))
        vectors = dict(zip(texts, await self._vectors(texts), strict=True))
        return [Entry(e.prefix, e.key, e.text, vectors.get(e.text)) for e in entries]

    async def write(self, cursor: AsyncCursor[DictRow], puts: Iterable[PutOp], entries: Sequence[Entry]) -> None:
        """Index what was put, in the transaction of `cursor`; what is put without a text to find it by leaves."""
        indexed = {(e.prefix, e.key) for e in entries}
        others = {(".".join(put.namespace), put.key) for put in puts if put.value is not None} - indexed
        if others:
            await cursor.execute(_FORGET, [list(column) for column in zip(*sorted(others), strict=True)])
        await _write(cursor, entries, self._model)

    async def search(self, op: SearchOp) -> list[DictRow]:
        """The items whose texts are likest to the query, by meaning and by words in turn; likest first.

        Rows are those of the store's table, with the cosine of the vectors as `score`, and where there are none
        the likeness of the texts.
        """
        query = op.query or ""
        (vector,) = await self._vectors([query])
        prefix = ".".join(op.namespace_prefix)
        async with self._pool.connection() as connection:
            scopes = await _scopes(connection, op.namespace_prefix)
            asked = [term for scope in scopes for term in terms(scope, query)]
            wanted = op.limit + op.offset
            sql = _search(wanted, asked=len(asked), narrow=len(op.namespace_prefix) > SCOPE_PARTS, vector=vector)
            values = {"terms": asked, "scopes": scopes, "prefix": prefix, "vector": vector, "model": self._model}
            async with connection.pipeline(), connection.transaction():
                await connection.execute(_SEARCH_SETTINGS, [str(min(1_000, max(100, 2 * wanted)))])
                # Planned anew each time: what is best depends on how large the scope is.
                cursor = await connection.execute(sql.encode(), values, prepare=False)
                rows = _in_turn(await cursor.fetchall(), wanted)
        unscored = [row for row in rows if row["score"] is None]
        likeness = await asyncio.to_thread(rank, query, [row["text"] for row in unscored])
        for row, score in zip(unscored, likeness, strict=True):
            row["score"] = score
        return sorted(rows, key=lambda row: -row["score"])[op.offset :]

    async def _fill(self, most: float = math.inf) -> int:
        """Embed texts that have no vector, about so many at most; returns how many got one."""
        done, last = 0, 0
        while done < most:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(_MISSING, [last, PAGE])
                rows = await cursor.fetchall()
            texts = list(dict.fromkeys(row["text"] for row in rows))
            made = await self._meaning.vectors(texts)
            if made is None:
                break
            vectors = {text: written(vector) for text, vector in zip(texts, made, strict=True)}
            values = [vectors[row["text"]] for row in rows]
            async with self._pool.connection() as connection:
                await connection.execute(_SET_VECTORS, [[row["id"] for row in rows], values, self._model])
            done, last = done + len(rows), rows[-1]["id"]
        return done

    async def _vectors(self, texts: Sequence[str]) -> list[str | None]:
        """As pgvector writes them; None for each where there are none."""
        made = await self._meaning.vectors(texts) if self._model is not None else None
        return [None] * len(texts) if made is None else [written(vector) for vector in made]


def _entry(put: PutOp) -> Entry | None:
    if put.value is None or not put.index:
        return None
    texts = [text for path in put.index for text in get_text_at_path(put.value, tokenize_path(path))]
    return Entry(".".join(put.namespace), put.key, "\n".join(texts)[:LONGEST_TASK]) if texts else None


async def _write(cursor: AsyncCursor[DictRow], entries: Sequence[Entry], model: str | None) -> None:
    if not entries:
        return
    prefixes, keys, texts = [e.prefix for e in entries], [e.key for e in entries], [e.text for e in entries]
    scopes = [_scope(e.prefix) for e in entries]
    await cursor.execute(_FORGET_CHANGED, [prefixes, keys, texts])
    if model is None:
        await cursor.execute(_ADD, [scopes, prefixes, keys, texts])
    else:
        await cursor.execute(_ADD_WITH_VECTORS, [scopes, prefixes, keys, texts, [e.vector for e in entries], model])
    words = [(e.prefix, e.key, term) for e, scope in zip(entries, scopes, strict=True) for term in terms(scope, e.text)]
    if words:
        await cursor.execute(_ADD_WORDS, [list(column) for column in zip(*words, strict=True)])


def _scope(prefix: str) -> str:
    return ".".join(prefix.split(".")[:SCOPE_PARTS])


async def _scopes(connection: Connection, namespace: tuple[str, ...]) -> list[str]:
    if len(namespace) >= SCOPE_PARTS:
        return [".".join(namespace[:SCOPE_PARTS])]
    cursor = await connection.execute(_SCOPES, {"prefix": ".".join(namespace)})
    return [row["scope"] for row in await cursor.fetchall()]


async def _index_old_items(connection: Connection) -> None:
    last = ("", "")
    async with connection.cursor() as cursor:
        while True:
            await cursor.execute(_OLD_ITEMS, [f"{OLD_ITEMS}.", *last, PAGE])
            if not (rows := await cursor.fetchall()):
                return
            await _write(cursor, [Entry(row["prefix"], row["key"], row["task"][:LONGEST_TASK]) for row in rows], None)
            last = rows[-1]["prefix"], rows[-1]["key"]


def _in_turn(rows: Sequence[DictRow], limit: int) -> list[DictRow]:
    """The likest by meaning and by words in turn, so that each kind has half of the room."""
    by_meaning = sorted((row for row in rows if row["meant"]), key=lambda row: -row["score"])
    by_words = sorted((row for row in rows if row["weight"] is not None), key=lambda row: -row["weight"])
    turns = itertools.chain.from_iterable(itertools.zip_longest(by_meaning, by_words))
    found = {(row["prefix"], row["key"]): row for row in turns if row is not None}
    return list(found.values())[:limit]


def _search(limit: int, *, asked: int, narrow: bool, vector: str | None) -> str:
    newest = max(1, READ // max(1, asked))
    within = "(prefix = %(prefix)s OR starts_with(prefix, %(prefix)s || '.') OR %(prefix)s = '')"
    inside = f"JOIN reflexion_index USING (id) WHERE {within}" if narrow else ""
    # The numbers are written out, as the planner has to know them.
    meant = f"""
        SELECT id FROM reflexion_index
        WHERE scope = ANY(%(scopes)s) AND {within} AND embedding IS NOT NULL AND {_CURRENT.format("%(model)s")}
        ORDER BY embedding <=> %(vector)s::halfvec LIMIT {limit}
    """  # noqa: S608 - own names and numbers
    cosine = f"CASE WHEN {_CURRENT.format('%(model)s')} THEN 1 - (embedding <=> %(vector)s::halfvec) END"
    return f"""
        WITH held AS MATERIALIZED (
            SELECT array_agg(id) AS ids, count(*) AS n FROM unnest(%(terms)s::bigint[]) AS asked (term), LATERAL (
                SELECT id FROM reflexion_words WHERE term = asked.term ORDER BY id DESC LIMIT {newest}
            ) AS newest GROUP BY asked.term
        ), worded AS MATERIALIZED (
            SELECT id, sum(ln(1 + {newest}::float / n)) AS weight FROM held, unnest(ids) AS id {inside}
            GROUP BY id ORDER BY weight DESC, id DESC LIMIT {limit}
        ), meant AS MATERIALIZED ({meant if vector else "SELECT NULL::bigint AS id WHERE false"})
        SELECT prefix, key, value, created_at, updated_at, text, weight, meant.id IS NOT NULL AS meant,
            {cosine if vector else "NULL::float"} AS score
        FROM (worded FULL JOIN meant USING (id)) JOIN reflexion_index USING (id) JOIN store USING (prefix, key)
        WHERE {within}
    """  # noqa: S608 - own names and numbers


_CREATE: Final = (
    """
    CREATE TABLE reflexion_index (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, scope text NOT NULL,
        prefix text NOT NULL, key text NOT NULL, text text NOT NULL,
        UNIQUE (prefix, key), FOREIGN KEY (prefix, key) REFERENCES store (prefix, key) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX reflexion_index_scope ON reflexion_index (scope)",
    """
    CREATE TABLE reflexion_words (
        term bigint, id bigint REFERENCES reflexion_index (id) ON DELETE CASCADE, PRIMARY KEY (term, id)
    )
    """,
    "CREATE INDEX reflexion_words_id ON reflexion_words (id)",
    "CREATE TABLE reflexion_index_model (model text NOT NULL, probe double precision[] NOT NULL)",
)
_CURRENT: Final = "(SELECT model FROM reflexion_index_model) = {}"
"""Another process may have indexed everything anew, with another model, since this one looked."""

_KNOWN: Final = """
SELECT prefix, key, text FROM reflexion_index JOIN unnest(%s::text[], %s::text[]) AS asked (prefix, key)
USING (prefix, key) WHERE embedding IS NOT NULL
"""
_FORGET: Final = """
DELETE FROM reflexion_index USING unnest(%s::text[], %s::text[]) AS put (prefix, key)
WHERE reflexion_index.prefix = put.prefix AND reflexion_index.key = put.key
"""
_FORGET_CHANGED: Final = """
DELETE FROM reflexion_index AS old USING unnest(%s::text[], %s::text[], %s::text[]) AS put (prefix, key, text)
WHERE old.prefix = put.prefix AND old.key = put.key AND old.text <> put.text
"""
_ADD: Final = """
INSERT INTO reflexion_index (scope, prefix, key, text)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) ON CONFLICT (prefix, key) DO NOTHING
"""
_ADD_WITH_VECTORS: Final = f"""
INSERT INTO reflexion_index AS old (scope, prefix, key, text, embedding)
SELECT scope, prefix, key, text, CASE WHEN {_CURRENT.format("ours.model")} THEN vector::halfvec END
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) AS put (scope, prefix, key, text, vector),
    (VALUES (%s::text)) AS ours (model)
ON CONFLICT (prefix, key) DO UPDATE SET embedding = excluded.embedding WHERE old.embedding IS NULL
"""  # noqa: S608 - own names
_ADD_WORDS: Final = """
INSERT INTO reflexion_words (term, id) SELECT term, id
FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS put (prefix, key, term) JOIN reflexion_index USING (prefix, key)
ON CONFLICT DO NOTHING
"""
_SCOPES: Final = """
SELECT DISTINCT scope FROM reflexion_index
WHERE scope = %(prefix)s OR starts_with(scope, %(prefix)s || '.') OR %(prefix)s = ''
"""
# Locked against being deleted before they are indexed.
_OLD_ITEMS: Final = """
SELECT prefix, key, value->>'task' AS task FROM store
WHERE starts_with(prefix, %s) AND (prefix, key) > (%s, %s) AND jsonb_typeof(value->'task') = 'string'
    AND NOT EXISTS (SELECT FROM reflexion_index AS i WHERE (i.prefix, i.key) = (store.prefix, store.key))
ORDER BY prefix, key LIMIT %s FOR KEY SHARE OF store
"""
_MISSING: Final = "SELECT id, text FROM reflexion_index WHERE embedding IS NULL AND id > %s ORDER BY id LIMIT %s"
_SET_VECTORS: Final = f"""
UPDATE reflexion_index AS old SET embedding = new.vector::halfvec
FROM unnest(%s::bigint[], %s::text[]) AS new (id, vector) WHERE old.id = new.id AND {_CURRENT.format("%s")}
"""  # noqa: S608 - own names
# The scan goes on past the vectors of other scopes until it has its hits, or has seen a tenth of a million vectors.
# Compiling a plan would take longer than running it.
_SEARCH_SETTINGS: Final = """
SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'strict_order', true),
    set_config('hnsw.max_scan_tuples', '100000', true), set_config('hnsw.scan_mem_multiplier', '8', true),
    set_config('jit', 'off', true)
"""
