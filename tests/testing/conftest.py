from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from reflexion.testing import FakeOpenAI


@pytest.fixture
async def server() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as running:
        yield running


@pytest.fixture
async def client(server: FakeOpenAI) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0, timeout=60) as open_client:
        yield open_client
