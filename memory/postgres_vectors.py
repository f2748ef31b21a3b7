"""Vectors in PostgreSQL: whether the extension pgvector is there, the column for them, and whose vectors it holds."""

import re
import uuid
from typing import Final

import numpy as np
import psycopg

from reflexion.memory.cells import Vectors, unit
from reflexion.memory.meaning import Meaning
from reflexion.memory.postgres_sql import Connection, exists
from reflexion.models.redaction import redacted

OLDEST_PGVECTOR: Final = (0, 8)
"""Earlier ones stop at the 40 nearest vectors of all scopes, and may find none of the scope that is asked for."""


class NoVectors(Exception):  # noqa: N818 - a state of the database, not a fault
    """Tasks are found by their words alone here: why, and what to do about it."""


async def known_model(connection: Connection, meaning: Meaning) -> str | None:
    """The set of vectors in the table; a new, empty one where there is none.

    None, and a warning, where they are of another model.

    Raises:
        NoVectors: they cannot be set up here.
    """
    try:
        if not await exists(connection, "reflexion_index_vectors"):
            async with connection.transaction():
                return await start_vectors(connection, meaning.probe)
    except psycopg.ProgrammingError as error:
        raise NoVectors(
            f"vectors cannot be set up here ({_said(error)}): open the database once as the owner of its tables"
        ) from error
    cursor = await connection.execute("SELECT model, probe FROM reflexion_index_model")
    row = await cursor.fetchone()
    return str(row["model"]) if row and meaning.made(np.asarray(row["probe"], np.float32)) else None


async def need_pgvector(connection: Connection) -> None:
    """See to the extension; it is created where it may be.

    Raises:
        NoVectors: it is not to be had.
    """
    cursor = await connection.execute(
        "SELECT installed_version, default_version FROM pg_available_extensions WHERE name = 'vector'"
    )
    row = await cursor.fetchone()
    if not row:
        raise NoVectors("this server has no pgvector: install it (package postgresql-<version>-pgvector)")
    version = row["installed_version"] or row["default_version"]
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_PGVECTOR:
        raise NoVectors(
            f"this database has pgvector {version}: install 0.8 or later, then ALTER EXTENSION vector UPDATE"
        )
    if not row["installed_version"]:
        try:
            async with connection.transaction():
                await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.DatabaseError as error:
            raise NoVectors(
                f"the extension pgvector cannot be created here ({_said(error)}): let an administrator run CREATE "
                "EXTENSION vector in this database"
            ) from error


async def start_vectors(connection: Connection, probe: Vectors) -> str:
    """An empty column for vectors of this length, in place of the one before; returns the name of the set."""
    model = uuid.uuid4().hex
    await connection.execute("ALTER TABLE reflexion_index DROP COLUMN IF EXISTS embedding")
    await connection.execute(f"ALTER TABLE reflexion_index ADD COLUMN embedding halfvec({len(probe)})".encode())
    for sql in _CREATE_VECTOR_INDEXES if len(probe) <= _LONGEST_INDEXED else _CREATE_VECTOR_INDEXES[:1]:
        await connection.execute(sql)
    await connection.execute("DELETE FROM reflexion_index_model")
    await connection.execute("INSERT INTO reflexion_index_model VALUES (%s, %s)", [model, probe.tolist()])
    return model


def written(vector: Vectors | None) -> str | None:
    """As pgvector reads it, with length 1; None for a vector without a direction, which no other is like."""
    return None if vector is None or not vector.any() else f"[{','.join(f'{x:.5g}' for x in unit(vector))}]"


def _said(error: Exception) -> str:
    return redacted(f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])


# Half the bytes, and on unit vectors an error of the cosine below 0.001.
_CREATE_VECTOR_INDEXES: Final = (
    "CREATE INDEX reflexion_index_vectors ON reflexion_index (id) WHERE embedding IS NULL",
    "CREATE INDEX reflexion_index_meaning ON reflexion_index USING hnsw (embedding halfvec_cosine_ops)",
)
_LONGEST_INDEXED: Final = 4_000
"""Numbers of a vector that pgvector can index; longer ones are compared one by one."""
