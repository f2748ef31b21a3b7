"""Agents over a real server on loopback and a real database."""

import pytest
from loop_bench import Bench
from traced import tracing_to

from reflexion.testing import FakeLangSmith, FakeOpenAI


@pytest.fixture
def server():
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def bench(server, sqlite_url):
    return Bench(server, sqlite_url)


@pytest.fixture
def traces():
    """A LangSmith that this process traces to."""
    with FakeLangSmith() as server, tracing_to(server):
        yield server
