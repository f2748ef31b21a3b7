"""What the tests of the loop share."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import langchain_openai  # noqa: F401 - its import must not count as a run's time

from reflexion.graphs import Reflexion, Settings, open_reflexion
from reflexion.models import ConnectionSettings
from reflexion.testing import FakeOpenAI

ROLES = ("actor", "critic", "reflector", "planner")

GOOD = {"score": 9}
BAD = {"score": 4, "weaknesses": "the empty list is forgotten", "improvements": "f([]) == 0"}
LESSON = "Check the empty list before taking its first item."


def counting(text: str) -> Callable[[dict[str, Any]], str]:
    """A script whose every reply differs."""
    numbers = count(1)
    return lambda _: f"{text} {next(numbers)}"


@dataclass(frozen=True)
class Bench:
    """A server that plays all roles, and agents that use it."""

    server: FakeOpenAI
    url: str

    def __post_init__(self) -> None:
        self.server.default("actor-m", counting("answer"))
        self.server.default("critic-m", BAD)
        self.server.default("reflector-m", {"improvement": LESSON})
        self.server.default("planner-m", "1. Look at the empty list.")

    def settings(self, **values: Any) -> Settings:
        usual: dict[str, Any] = {
            "actor_model": "actor-m",
            "evaluator_model": "critic-m",
            "reflector_model": "reflector-m",
            "planner_model": "planner-m",
            # What chance decides is tested where it is the matter.
            "memory_explore": 0,
            "memory_control": 0,
        }
        return Settings(**usual | values)

    def connection(self, **values: Any) -> ConnectionSettings:
        return ConnectionSettings(**{"base_url": self.server.base_url, "api_key": "any", "max_retries": 0} | values)

    def agent(
        self, url: str | None = None, *, connection: dict[str, Any] | None = None, own: Any = None, **settings: Any
    ) -> Reflexion:
        return open_reflexion(
            self.settings(**settings),
            connection=self.connection(**connection or {}),
            database_url=url or self.url,
            **own or {},
        )

    def counts(self) -> dict[str, int]:
        """Requests by role, as the server has counted them."""
        return {role: len(self.server.requests_for(f"{role}-m")) for role in ROLES}

    def prompt(self, role: str, number: int) -> str:
        """The text of a role's request; 0 for its first."""
        return "\n\n".join(m["content"] for m in self.server.requests_for(f"{role}-m")[number].body["messages"])
