"""A loopback endpoint and a client for it that notes its waits instead of waiting."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage

from reflexion.models import (
    Budget,
    ChatClient,
    ConnectionSettings,
    Meter,
    Models,
    Reply,
    Structure,
    Usage,
    strict_schema,
)
from reflexion.testing import FakeOpenAI

VERDICT = Structure("verdict", strict_schema(score={"type": "number"}))
PROMPT = [SystemMessage("Reply in JSON."), HumanMessage("How good is it?")]


@dataclass
class Endpoint:
    """What a test needs to ask the server and to see what it was asked."""

    server: FakeOpenAI
    waits: list[float] = field(default_factory=list)
    opened: list[Models] = field(default_factory=list)

    def models(self, **settings: Any) -> Models:
        given = {"base_url": self.server.base_url, "api_key": "any", "_env_file": None, **settings}

        async def sleep(seconds: float) -> None:
            self.waits.append(seconds)

        models = Models(ConnectionSettings(**given), sleep=sleep)
        self.opened.append(models)
        return models

    def client(self, name: str = "m", **settings: Any) -> ChatClient:
        return self.models(**settings).client("actor", name)

    def meter(self, **limits: Any) -> Meter:
        return metered(**limits)

    async def ask(self, client: ChatClient | None = None, meter: Meter | None = None, **options: Any) -> Reply:
        return await (client or self.client()).complete(PROMPT, meter or self.meter(), **options)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.server.requests]


def metered(
    *, spent: Usage | None = None, budget_tokens: int | None = None, budget_usd: Decimal | None = None, **about: Any
) -> Meter:
    """A meter with a budget of its own."""
    budget = None
    if budget_tokens is not None or budget_usd is not None:
        budget = Budget("run", tokens=budget_tokens, usd=budget_usd, spent=spent)
    return Meter(**{"role": "actor", "attempt": 1} | about, budget=budget)
