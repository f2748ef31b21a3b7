"""A loopback endpoint for every test."""

import os
from collections.abc import AsyncIterator

import pytest
from endpoint import Endpoint

from reflexion.models import ChatClient, RetryPolicy, capabilities
from reflexion.models.connect import chat_openai
from reflexion.testing import FakeOpenAI


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    # The same port may come again, and what was learnt of its last owner is wrong of the next.
    monkeypatch.setattr(capabilities, "_KNOWN", {})
    for variable in [name for name in os.environ if name.startswith(("REFLEXION_", "OPENAI_"))]:
        monkeypatch.delenv(variable)
    async with FakeOpenAI() as server:
        made = Endpoint(server)
        yield made
        for models in made.opened:
            await models.aclose()


@pytest.fixture
async def guarded_client(endpoint):
    """Makes a client with guards of the test's own."""
    connection = endpoint.models().connection
    closing = []

    def make(seam, name="m", **about):
        async def connect():
            model, close = chat_openai(connection, endpoint.server.base_url, "any", name)
            closing.append(close)
            return model

        about = {"retry": RetryPolicy(max_retries=0), **about}
        return ChatClient(connect, name=name, base_url=endpoint.server.base_url, seam=seam, **about)

    yield make
    for close in closing:
        await close()
