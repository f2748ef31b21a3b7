"""One Temporal server per pytest worker; each test has its own task queue, database and workers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet, connected, temporal_server


@pytest.fixture(scope="session")
def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with temporal_server(tmp_path_factory.mktemp("temporal")) as address:
        asyncio.run(connected(address))
        yield address


@pytest.fixture
def fleet(bench, temporal_address, postgres_url) -> Iterator[Fleet]:
    fleet = Fleet(bench, temporal_address, postgres_url)
    try:
        yield fleet
    finally:
        fleet.end()
        for worker in fleet.workers:
            print(worker.said[-5_000:])


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
