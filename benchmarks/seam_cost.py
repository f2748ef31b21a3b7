"""What the seam costs per call, against bare ChatOpenAI and the bare OpenAI client in the same run.

The contenders take turns in short rounds, so that whatever else the machine does falls on all of them alike; a ratio is
the median over the rounds. The server is a process of its own, so that CPU time is the caller's alone.

    uv run python benchmarks/seam_cost.py [--rounds 40] [--calls 25] [--stream]
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import aiosqlite
import openai
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from reflexion.memory.ledger import SqliteLedger
from reflexion.models import (
    Breaker,
    Budget,
    ChatClient,
    ConnectionSettings,
    Ledger,
    Limits,
    Meter,
    Models,
    Price,
    Prices,
    RateLimit,
    guard_model,
)
from reflexion.testing import FakeOpenAI, Reply

PROMPT = "Write a function. " * 100
ANSWER = "def f(n):\n    return n\n" * 20
PRICE = Price(input=Decimal(1), output=Decimal(2))
BARE, BEFORE = "ChatOpenAI", "openai"

Ask = Callable[[], Awaitable[object]]


def serve(pipe: Connection) -> None:
    """Answer until told to stop; runs in a process of its own."""
    with FakeOpenAI() as server:
        server.default("m", Reply(ANSWER))
        pipe.send(server.base_url)
        pipe.recv()


async def contenders(url: str, folder: str, stack: AsyncExitStack, *, stream: bool) -> dict[str, Ask]:
    """One call each, with whatever it needs open already."""
    messages = [HumanMessage(PROMPT)]
    sdk = openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0)
    bare = ChatOpenAI(model="m", base_url=url, api_key="any", max_retries=0, stream_usage=True)
    usual = ConnectionSettings(base_url=url, api_key="any", prices={"m": PRICE})
    limits = {"requests_per_minute": 1e6, "tokens_per_minute": 1e9, "concurrency": 99}
    clients = []
    for settings in (usual, usual.model_copy(update=limits)):
        models = Models(settings)
        stack.push_async_callback(models.aclose)
        clients.append(models.client("actor", "m"))
    table = SqliteLedger(await stack.enter_async_context(aiosqlite.connect(Path(folder) / "l", isolation_level=None)))
    await table.setup()
    await table._connection.execute("PRAGMA journal_mode=WAL")  # noqa: SLF001 - as the memory opens it
    await table._connection.execute("PRAGMA synchronous=NORMAL")  # noqa: SLF001

    def metered(client: ChatClient, ledger: Ledger, budget: Budget | None = None) -> Ask:
        heard = (lambda _: None) if stream else None
        return lambda: client.complete(
            messages,
            Meter(role="actor", attempt=1, run_id="r", budget=budget, ledger=ledger),
            max_tokens=2000,
            on_token=heard,
        )

    budget = Budget(usd=Decimal(10**6), parent=Budget("batch", usd=Decimal(10**6)))
    guarded = guard_model(
        bare,
        budget=Budget(usd=Decimal(10**6)),
        limits=RateLimit(Limits(**limits)),
        breaker=Breaker(),
        ledger=Ledger(),
        prices=Prices({"m": PRICE}),
    )

    async def by_sdk() -> None:
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        reply = await sdk.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": PROMPT}],
            max_completion_tokens=2000,
            **options,
        )
        if stream:
            async for _ in reply:
                pass

    def by(model: ChatOpenAI) -> Ask:
        async def ask() -> None:
            if stream:
                async for _ in model.astream(messages, max_tokens=2000):
                    pass
            else:
                await model.ainvoke(messages, max_tokens=2000)

        return ask

    return {
        BEFORE: by_sdk,
        BARE: by(bare),
        "guard_model, all guards": by(guarded),
        "ChatClient as it comes": metered(clients[0], Ledger()),
        "ChatClient, all guards": metered(clients[1], Ledger(), budget),
        "the same with SQLite": metered(clients[1], Ledger(table), budget),
    }


async def measure(ask: Ask, calls: int) -> tuple[float, float]:
    """CPU and wall-clock seconds per call."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        await ask()
    return (time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls


async def main(url: str, rounds: int, calls: int, *, stream: bool) -> None:
    """Measure in turns and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            asks = await contenders(url, folder, stack, stream=stream)
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in asks}
            for number in range(rounds + 2):
                for name, ask in asks.items():
                    took = await measure(ask, calls)
                    if number >= 2:
                        times[name].append(took)
    print(f"{'':26}  CPU ms   / {BARE}   / {BEFORE}   wall ms   / {BARE}")
    for name, took in times.items():
        cpu = median(seconds for seconds, _ in took)
        wall = median(seconds for _, seconds in took)
        to_bare, to_sdk, wall_to_bare = (
            median(mine[kind] / other[kind] for mine, other in zip(took, times[against], strict=True))
            for kind, against in ((0, BARE), (0, BEFORE), (1, BARE))
        )
        print(
            f"{name:26}  {cpu * 1e3:6.2f}   {to_bare:12.3f}   {to_sdk:8.2f}   {wall * 1e3:7.2f}   {wall_to_bare:12.3f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=25)
    parser.add_argument("--stream", action="store_true", help="stream the replies")
    given = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,))
    server.start()
    try:
        asyncio.run(main(here.recv(), given.rounds, given.calls, stream=given.stream))
    finally:
        here.send("stop")
        server.join()
