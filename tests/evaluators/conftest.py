"""A critic's endpoint."""

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from reflexion.evaluators import Critic
from reflexion.models import Budget, ConnectionSettings, Meter, Models, capabilities
from reflexion.prompts import PromptBook
from reflexion.testing import FakeOpenAI


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeOpenAI]:
    # The same port may come again, and what was learnt of its last owner is wrong of the next.
    monkeypatch.setattr(capabilities, "_KNOWN", {})
    for variable in [name for name in os.environ if name.startswith(("REFLEXION_", "OPENAI_"))]:
        monkeypatch.delenv(variable)
    async with FakeOpenAI() as running:
        yield running


@pytest.fixture
async def critic(server: FakeOpenAI) -> AsyncIterator[Callable[..., Critic]]:
    models = Models(ConnectionSettings(base_url=server.base_url, api_key="any", max_retries=0, _env_file=None))
    book = PromptBook.load()

    def make(lang: Any = "en", budget_requests: int | None = None, **sampling: Any) -> Critic:
        budget = None if budget_requests is None else Budget("run", requests=budget_requests)
        meter = Meter(role="evaluator", attempt=1, budget=budget)
        return Critic(models.client("evaluator", "critic-m"), meter, book, lang, **sampling)

    yield make
    await models.aclose()
