"""Agents over a real server on loopback and a real database."""

import pytest
from loop_bench import Bench

from reflexion.testing import FakeOpenAI


@pytest.fixture
def server():
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def bench(server, sqlite_url):
    return Bench(server, sqlite_url)
