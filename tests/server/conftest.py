"""One server per pytest worker for all tests here; `xdist_group("server")` is to keep them on one worker."""

from collections.abc import Iterator

import pytest
from dev_server import Cast, DevServer, dev_server
from langgraph_sdk import get_client


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("server")) as running:
        yield running
    assert "BlockingError" not in running.log.read_text()


@pytest.fixture
async def client(server: DevServer):
    async with get_client(url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def cast(server: DevServer) -> Cast:
    """Models of this test's own: the first attempt falls short, the second passes."""
    cast = Cast.new(server.endpoint)
    cast.plays_two_attempts()
    return cast


@pytest.fixture(autouse=True)
def _log_on_failure(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the server logs while a test runs is shown where the test fails."""
    if "server" not in request.fixturenames:
        yield
        return
    log = request.getfixturevalue("server").log
    before = log.stat().st_size
    yield
    print(log.read_bytes()[before:].decode(errors="replace")[-10_000:])
