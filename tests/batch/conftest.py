"""Batches over a real server on loopback, a real database and real files."""

import pytest
from batch_bench import BatchBench

from reflexion.testing import FakeOpenAI


@pytest.fixture
def server():
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def bench(server, tmp_path):
    return BatchBench(server, tmp_path)
