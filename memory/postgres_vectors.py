"""Vectors in PostgreSQL: whether the extension pgvector is there, the column for them, and whose vectors it holds."""

import logging
import math
import re
import uuid
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from langchain_core.embeddings import Embeddings
from psycopg import AsyncConnection
from psycopg.rows import DictRow

from reflexion.models.redaction import redacted

log = logging.getLogger(__name__)

PROBE: Final = "Write a function that returns the sum of a list of numbers."
"""By its vector another embedding model is told apart."""
SAME_MODEL: Final = 0.99
"""Cosine of the probe's vectors, then and now, that the same model reaches on any machine."""
OLDEST_PGVECTOR: Final = (0, 8)
"""Earlier ones stop at the 40 nearest vectors of all scopes, and may find none of the scope that is asked for."""

Connection = AsyncConnection[DictRow]


async def known_model(connection: Connection, probe: list[float]) -> str | None:
    """The set of vectors in the table if they are comparable with the probe's; a new, empty one where there is none.

    None, and a warning that says what to do, where vectors are not to be had.
    """
    try:
        if not await pgvector(connection):
            return None
        if not await exists(connection, "reflexion_index_vectors"):
            async with connection.transaction():
                return await start_vectors(connection, probe)
    except psycopg.ProgrammingError as error:
        _no_vectors(f"vectors cannot be set up here ({said(error)}): open the database once as the owner of its tables")
        return None
    cursor = await connection.execute("SELECT model, probe FROM reflexion_index_model")
    row = await cursor.fetchone()
    if row and _cosine(row["probe"], probe) >= SAME_MODEL:
        return str(row["model"])
    _no_vectors("the index was made with other embeddings: open the database with those, or call store.areindex() once")
    return None


async def pgvector(connection: Connection) -> bool:
    """Whether the extension is there, created where it may be; a warning that says what to do where it is not."""
    cursor = await connection.execute(
        "SELECT installed_version, default_version FROM pg_available_extensions WHERE name = 'vector'"
    )
    row = await cursor.fetchone()
    if not row:
        return _no_vectors("this server has no pgvector: install it (package postgresql-<version>-pgvector)")
    version = row["installed_version"] or row["default_version"]
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_PGVECTOR:
        return _no_vectors(f"this database has pgvector {version}: install 0.8 or later, then ALTER EXTENSION vector "
                           "UPDATE")  # fmt: skip
    if not row["installed_version"]:
        try:
            async with connection.transaction():
                await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.DatabaseError as error:
            return _no_vectors(f"the extension pgvector cannot be created here ({said(error)}): let an administrator "
                               "run CREATE EXTENSION vector in this database")  # fmt: skip
    return True


def _no_vectors(why: str) -> bool:
    log.warning("memory: tasks are found by their words alone, because %s", why)
    return False


async def start_vectors(connection: Connection, probe: list[float]) -> str:
    """An empty column for vectors of this length, in place of the one before; returns the name of the set."""
    model = uuid.uuid4().hex
    await connection.execute("ALTER TABLE reflexion_index DROP COLUMN IF EXISTS embedding")
    await connection.execute(f"ALTER TABLE reflexion_index ADD COLUMN embedding halfvec({len(probe)})".encode())
    for sql in _CREATE_VECTOR_INDEXES if len(probe) <= _LONGEST_INDEXED else _CREATE_VECTOR_INDEXES[:1]:
        await connection.execute(sql)
    await connection.execute("DELETE FROM reflexion_index_model")
    await connection.execute("INSERT INTO reflexion_index_model VALUES (%s, %s)", [model, probe])
    return model


async def embedded(embeddings: Embeddings, texts: list[str], dims: int | None = None) -> list[list[float]]:
    """Vectors of length 1, or 0 where a text has no direction, of so many numbers each.

    Raises:
        Exception: whatever the embeddings raise; ValueError where they give something else.
    """
    vectors = await embeddings.aembed_documents(texts)
    found = {len(vector) for vector in vectors}
    if len(vectors) != len(texts) or len(found) != 1 or dims not in {None, *found}:
        raise ValueError(f"{len(texts)} texts gave {len(vectors)} vectors of {sorted(found)} numbers, not of {dims}")
    lengths = [math.hypot(*vector) for vector in vectors]
    if not all(math.isfinite(length) for length in lengths):
        raise ValueError("a vector is not finite")
    return [[float(x) / (n or 1.0) for x in vector] for vector, n in zip(vectors, lengths, strict=True)]


def written(vector: list[float] | None) -> str | None:
    """As pgvector reads it; None for a vector without a direction, which no other is like."""
    return f"[{','.join(f'{x:.5g}' for x in vector)}]" if vector and any(vector) else None


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) if len(one) == len(other) else 0.0


def said(error: Exception) -> str:
    """What an error says, without keys and fit for a line."""
    return redacted(f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])


async def exists(connection: Connection, relation: str) -> bool:
    """Whether there is such a table or index."""
    return bool(await scalar(connection, "SELECT to_regclass(%s) IS NOT NULL", [relation]))


async def scalar(connection: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """The first value of the first row, None where there is none."""
    cursor = await connection.execute(sql.encode(), values)
    row = await cursor.fetchone()
    return next(iter(row.values())) if row else None


# Half the bytes, and on unit vectors an error of the cosine below 0.001.
_CREATE_VECTOR_INDEXES: Final = (
    "CREATE INDEX reflexion_index_vectors ON reflexion_index (id) WHERE embedding IS NULL",
    "CREATE INDEX reflexion_index_meaning ON reflexion_index USING hnsw (embedding halfvec_cosine_ops)",
)
_LONGEST_INDEXED: Final = 4_000
"""Numbers of a vector that pgvector can index; longer ones are compared one by one."""
