"""Short questions to PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import DictRow

Connection = AsyncConnection[DictRow]


async def exists(connection: Connection, relation: str) -> bool:
    """Whether there is such a table or index."""
    return bool(await scalar(connection, "SELECT to_regclass(%s) IS NOT NULL", [relation]))


async def scalar(connection: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """The first value of the first row, None where there is none."""
    cursor = await connection.execute(sql.encode(), values)
    row = await cursor.fetchone()
    return next(iter(row.values())) if row else None
