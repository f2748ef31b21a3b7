"""Fixtures that run a test over every database that reflexion knows, and the Redis that processes share."""

import os
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

POSTGRES_VARIABLE = "REFLEXION_TEST_POSTGRES"
REDIS_VARIABLE = "REFLEXION_TEST_REDIS"

# No slow machine and no new random number fails a property test; `--hypothesis-profile=default` looks for new examples.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("calm")

# Tests start a hundred interpreters: without caches each would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A new database on the server that REFLEXION_TEST_POSTGRES names, dropped afterwards."""
    server = os.environ.get(POSTGRES_VARIABLE)
    if not server:
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server (postgresql://user@127.0.0.1:port/database)")
    import psycopg

    name = f"reflexion_{uuid.uuid4().hex}"
    base, _, _ = server.rpartition("/")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield f"{base}/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


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
