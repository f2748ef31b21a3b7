"""One run in a process of its own, whose tracing is in trouble; see test_trace_trouble.py."""

import asyncio
import sys

from reflexion.graphs import Settings, open_reflexion
from reflexion.models import ConnectionSettings, trace_client


async def work(base_url: str) -> None:
    models = {f"{role}_model": f"{role}-m" for role in ("actor", "reflector", "planner")}
    settings = Settings(**models, evaluator_model="critic-m", max_attempts=2)
    connection = ConnectionSettings(base_url=base_url, api_key="any", max_retries=0)
    async with open_reflexion(settings, connection=connection, database_url="memory://") as agent:
        for _ in range(2):
            result = await agent.run("Sum a list.")
            print(result.stop_reason, result.score, result.usage.requests)


if sys.argv[2:] == ["patient"]:
    trace_client.EXIT_S = 60
asyncio.run(work(sys.argv[1]))
