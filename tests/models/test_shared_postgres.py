"""The database through which workers share counters: who may use it, how many connections, and when it goes away."""

import asyncio
import uuid
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import psycopg
import pytest
from exchanges import exchange

from reflexion.models import ConnectionSettings, shared_postgres
from reflexion.models.budget import Budget
from reflexion.models.errors import ModelError
from reflexion.models.exchange import guarded
from reflexion.models.seam import Seam
from reflexion.models.shared_budget import SharedBudget


def execute(url: str, sql: str) -> list:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def as_user(postgres_url):
    """The same database as somebody who may create nothing in it."""
    name = f"user_{uuid.uuid4().hex}"
    execute(postgres_url, f"CREATE ROLE {name} LOGIN")
    execute(postgres_url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    parts = urlsplit(postgres_url)
    yield parts._replace(netloc=parts.netloc.replace("postgres", name, 1)).geturl()
    execute(postgres_url, f"DROP OWNED BY {name}")
    execute(postgres_url, f"DROP ROLE {name}")


@asynccontextmanager
async def worker(url: str):
    """What a worker shares, and its budget."""
    settings = ConnectionSettings(requests_per_minute=6000, _env_file=None)
    seam = Seam.of(settings, url)
    try:
        yield seam, SharedBudget("all", seam.budgets, requests=1000)
    finally:
        await seam.aclose()


async def call(seam: Seam, budget: SharedBudget) -> None:
    async with guarded(exchange(), seam.guards(Budget(parent=budget), None)):
        pass


async def test_somebody_who_may_create_nothing_shares_what_is_there(postgres_url, as_user):
    async with worker(as_user) as (_, budget):
        with pytest.raises(ModelError, match=r"reflexion_budget.*set the database up once as one who may"):
            await budget.look()
    async with worker(postgres_url) as (seam, budget):
        await call(seam, budget)
    execute(postgres_url, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {urlsplit(as_user).username}")
    async with worker(as_user) as (seam, budget):
        await call(seam, budget)
        assert len(await seam.breaker.state()) == 1


async def test_a_worker_needs_two_connections_for_all_that_it_shares(postgres_url):
    async with worker(postgres_url) as (seam, budget):
        await asyncio.gather(*(call(seam, budget) for _ in range(50)))
        (count,) = execute(
            postgres_url,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )[0]
    assert count <= 2


class Way:
    """A way to a server that can be cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._parts = parts
        self._server = None
        self._writers = set()

    async def open(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{self.port}").geturl()

    def cut(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader, writer) -> None:
        there, back = await asyncio.open_connection(*self._to)
        self._writers |= {writer, back}
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))


async def _pass_on(reader, writer) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_when_the_database_is_away_no_call_goes_out_and_when_it_is_back_they_do(postgres_url, monkeypatch):
    monkeypatch.setattr(shared_postgres, "PATIENCE_S", 2.0)
    way = Way(postgres_url)
    await way.open()
    port = way.port
    async with worker(way.url) as (seam, budget):
        await call(seam, budget)
        way.cut()
        with pytest.raises(ModelError, match="in PostgreSQL cannot be reached") as caught:
            await call(seam, budget)
        assert caught.value.retryable
        await way.open(port)
        async with asyncio.timeout(100):
            while True:
                try:
                    await call(seam, budget)
                except ModelError:
                    continue
                break
        assert (await budget.look())[1].requests == 0
        way.cut()
