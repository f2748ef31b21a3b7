"""Budgets that workers share through PostgreSQL."""

from collections.abc import Iterable

from reflexion.models.shared_budget import Books, Units
from reflexion.models.shared_postgres import SharedPostgres


class PostgresBudgets:
    """A row for each budget and one for each hold. A reservation locks the budget's row, and so they take turns."""

    def __init__(self, where: str | SharedPostgres) -> None:
        """Share budgets through `postgresql://user:password@host:port/database`, or what others share it with."""
        self._server = SharedPostgres.at(where, _DDL)

    async def reserve(
        self, name: str, hold: str, needed: Units, limit: tuple[int | None, int | None, int | None], lease_s: float
    ) -> Books:
        """Set the amount aside if it fits."""
        sql = "SELECT * FROM reflexion_budget_reserve(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
        return _books(await self._server.ask(sql, [name, hold, *needed, *limit, lease_s]))

    async def settle(self, name: str, hold: str, used: Units | None) -> None:
        """Replace what is set aside by what was used."""
        await self._server.ask(_SETTLE, [name, hold, *(used or Units())])

    async def renew(self, name: str, holds: Iterable[str], lease_s: float) -> None:
        """Prolong leases."""
        await self._server.ask(_RENEW, [lease_s, name, list(holds)])

    async def look(self, name: str) -> Books:
        """The books."""
        return _books(await self._server.ask("SELECT false, * FROM reflexion_budget_books(%s)", [name]))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._server.aclose()


def _books(rows: list[tuple[bool, ...]]) -> Books:
    granted, *amounts = rows[0]
    whole = [int(amount) for amount in amounts]
    return Books(granted=granted, spent=Units(*whole[:3]), held=Units(*whole[3:6]), lapsed=Units(*whole[6:]))


_AMOUNTS = ("nano", "tokens", "requests")
_OUT = ", ".join(f"{part}_{amount} bigint" for part in ("spent", "held", "lapsed") for amount in _AMOUNTS)


def _sums(condition: str) -> str:
    return ", ".join(f"coalesce(sum(h.{a}) FILTER (WHERE {condition}), 0)::bigint" for a in _AMOUNTS)


_DDL = (
    """
    CREATE TABLE IF NOT EXISTS reflexion_budget (
        name text PRIMARY KEY, nano bigint NOT NULL DEFAULT 0, tokens bigint NOT NULL DEFAULT 0,
        requests bigint NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS reflexion_budget_hold (
        name text NOT NULL, hold text NOT NULL, nano bigint NOT NULL, tokens bigint NOT NULL,
        requests bigint NOT NULL, till timestamptz NOT NULL, PRIMARY KEY (name, hold)
    )
    """,
    f"""
    CREATE OR REPLACE FUNCTION reflexion_budget_books(budget text) RETURNS TABLE ({_OUT}) LANGUAGE sql AS $$
        SELECT coalesce(max(b.nano), 0), coalesce(max(b.tokens), 0), coalesce(max(b.requests), 0),
            {_sums("h.till > clock_timestamp()")}, {_sums("h.till <= clock_timestamp()")}
        FROM (SELECT budget AS name) asked
        LEFT JOIN reflexion_budget b USING (name) LEFT JOIN reflexion_budget_hold h USING (name)
    $$
    """,  # noqa: S608 - own names
    # Each statement of the function sees what was committed before it: the sums are made with the row locked.
    f"""
    CREATE OR REPLACE FUNCTION reflexion_budget_reserve(
        budget text, mine text, nano bigint, tokens bigint, requests bigint,
        most_nano bigint, most_tokens bigint, most_requests bigint, lease_s double precision
    ) RETURNS TABLE (granted boolean, {_OUT}) LANGUAGE plpgsql AS $$
    DECLARE
        ends timestamptz := clock_timestamp() + lease_s * interval '1 second';
        known boolean;
        books record;
    BEGIN
        INSERT INTO reflexion_budget (name) VALUES (budget) ON CONFLICT DO NOTHING;
        PERFORM FROM reflexion_budget WHERE name = budget FOR UPDATE;
        UPDATE reflexion_budget_hold SET till = ends WHERE name = budget AND hold = mine;
        known := FOUND;
        SELECT * INTO books FROM reflexion_budget_books(budget);
        granted := known OR (
            (most_nano IS NULL OR books.spent_nano + books.held_nano + books.lapsed_nano + nano <= most_nano)
            AND (most_tokens IS NULL
                OR books.spent_tokens + books.held_tokens + books.lapsed_tokens + tokens <= most_tokens)
            AND (most_requests IS NULL
                OR books.spent_requests + books.held_requests + books.lapsed_requests + requests <= most_requests)
        );
        IF granted AND NOT known THEN
            INSERT INTO reflexion_budget_hold VALUES (budget, mine, nano, tokens, requests, ends);
        END IF;
        RETURN QUERY SELECT granted, now_are.* FROM reflexion_budget_books(budget) now_are;
    END $$
    """,  # noqa: S608 - own names
)
_SETTLE = """
WITH gone AS (DELETE FROM reflexion_budget_hold WHERE name = %s AND hold = %s RETURNING name)
UPDATE reflexion_budget b SET nano = nano + %s, tokens = tokens + %s, requests = requests + %s
FROM gone WHERE b.name = gone.name
"""
_RENEW = """
UPDATE reflexion_budget_hold SET till = clock_timestamp() + %s * interval '1 second'
WHERE name = %s AND hold = ANY(%s)
"""
