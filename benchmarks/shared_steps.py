"""What workers pay for what they share: per step in PostgreSQL and in Redis, and per write with a fence and without.

The contenders take turns in short rounds, so that whatever else the machine does falls on all of them alike; a ratio is
the median over the rounds.

    uv run python benchmarks/shared_steps.py --postgres postgresql://… --redis redis://… [--rounds 20] [--steps 50]

It makes tables and keys of its own names there; give it a database for trying out.
"""

import argparse
import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from statistics import median

from langgraph.checkpoint.base import empty_checkpoint

from reflexion.memory import open_persistence
from reflexion.models import fence
from reflexion.models.buckets import Claim, Limits
from reflexion.models.exchange import Exchange, unsent_call
from reflexion.models.ledger import Ledger
from reflexion.models.postgres_breaker import PostgresCircuits
from reflexion.models.postgres_buckets import PostgresBuckets
from reflexion.models.postgres_budget import PostgresBudgets
from reflexion.models.redis_breaker import RedisCircuits
from reflexion.models.redis_buckets import RedisBuckets
from reflexion.models.redis_budget import RedisBudgets
from reflexion.models.shared_budget import Units

Ask = Callable[[], Awaitable[object]]
LIMITS = Limits(requests_per_minute=6e6, burst_requests=1e6, tokens_per_minute=6e8, burst_tokens=1e8, concurrency=1000)


def shared(kind: str, url: str, stack: AsyncExitStack) -> dict[str, Ask]:
    """One call's worth of each counter: two steps."""
    circuits, buckets, budgets = (
        (RedisCircuits(url, patience_s=60), RedisBuckets(url), RedisBudgets(url))
        if kind == "redis"
        else (PostgresCircuits(url, patience_s=60), PostgresBuckets(url), PostgresBudgets(url))
    )
    for one in (circuits, buckets, budgets):
        stack.push_async_callback(one.aclose)
    key, numbers = (f"http://{uuid.uuid4()}", "m"), count()

    async def breaker() -> None:
        step = await circuits.enter(key)
        await circuits.leave(key, step.epoch or 0, "reply", "")

    async def limits() -> None:
        claim = Claim(id=str(next(numbers)), by="bench", tokens=1000)
        while not (await buckets.take(key, LIMITS, claim)).taken:
            pass
        await buckets.settle(key, LIMITS, claim.id, requests=0, tokens=500)

    async def budget() -> None:
        hold = str(next(numbers))
        await budgets.reserve(key[0], hold, Units(1000, 1000, 1), (10**15, None, None), 60)
        await budgets.settle(key[0], hold, Units(500, 500, 1))

    return {"budget": budget, "limits": limits, "breaker": breaker}


async def fenced(url: str, stack: AsyncExitStack) -> dict[str, tuple[Ask, Ask]]:
    """A write with a fence, and the same without."""
    database = await stack.enter_async_context(open_persistence(url))
    thread = str(uuid.uuid4())
    claim = await stack.enter_async_context(database.fenced(thread))
    ledger = Ledger(database.ledger)
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}

    async def line() -> None:
        request = Exchange(endpoint="", model="m")
        async with ledger.around(request):
            request.call = unsent_call(request, "ok")

    async def checkpoint() -> None:
        await database.checkpointer.aput(config, empty_checkpoint(), {}, {})

    def with_fence(write: Ask) -> Ask:
        async def written() -> None:
            token = fence.current.set(claim)
            try:
                await write()
            finally:
                fence.current.reset(token)

        return written

    return {"ledger line": (with_fence(line), line), "checkpoint": (with_fence(checkpoint), checkpoint)}


async def ms(ask: Ask, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        await ask()
    return (time.perf_counter() - started) / steps * 1000


async def main(arguments: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        here = shared("postgresql", arguments.postgres, stack)
        there = shared("redis", arguments.redis, stack)
        pairs = {f"{name}, PostgreSQL to Redis": (here[name], there[name]) for name in here}
        pairs |= {f"{name}, fenced to not": pair for name, pair in (await fenced(arguments.postgres, stack)).items()}
        for name, (one, other) in pairs.items():
            await ms(one, 3)
            await ms(other, 3)
            rounds = [
                (await ms(one, arguments.steps), await ms(other, arguments.steps)) for _ in range(arguments.rounds)
            ]
            ours, theirs = (median(times) for times in zip(*rounds, strict=True))
            ratio = median(a / b for a, b in rounds)
            print(f"{name:34} {ours:6.2f} ms {theirs:6.2f} ms  ratio {ratio:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    asyncio.run(main(parser.parse_args()))
