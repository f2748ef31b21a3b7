"""What traces cost a run: CPU and wall-clock time with tracing over without, in one run, in turns.

A run makes two attempts with a critic: six model calls and 17 traced runs with four scores. The model and LangSmith are
stand-ins on loopback in a process of their own, so that CPU time is the caller's alone; both answer at once, so that
nothing hides what tracing costs. What waits to be sent at the end of a round counts as CPU time, as it is work, and not
as wall-clock time, as no run waits for it.

    uv run python benchmarks/tracing_cost.py [--rounds 20] [--runs 5]
"""

import argparse
import asyncio
import multiprocessing
import os
import time
from collections.abc import Sequence
from itertools import count
from multiprocessing.connection import Connection
from statistics import median

import langsmith
from langchain_core.tracers.langchain import wait_for_all_tracers

from reflexion.graphs import Reflexion, Settings, open_reflexion
from reflexion.models import ConnectionSettings
from reflexion.testing import FakeLangSmith, FakeOpenAI

TASK = "Write a function that returns the largest number of each prefix of a list. " * 10
ANSWER = "def largest(numbers):\n    return [max(numbers[: i + 1]) for i in range(len(numbers))]\n" * 10


def serve(pipe: Connection) -> None:
    """Be the model and LangSmith until told to stop; runs in a process of its own."""
    with FakeOpenAI() as model, FakeLangSmith() as traces:
        numbers = count()
        model.default("m", lambda _: f"{ANSWER}# version {next(numbers)}")
        model.default("critic", {"score": 4, "weaknesses": "it is slow", "improvements": "use one pass"})
        model.default("reflector", {"improvement": "Carry the largest number along."})
        pipe.send((model.base_url, traces.environment()))
        pipe.recv()
        pipe.send(len(traces.runs))


async def measure(agent: Reflexion, runs: int, *, traced: bool) -> tuple[float, float]:
    """CPU and wall-clock seconds per run."""
    cpu, wall = time.process_time(), time.perf_counter()
    with langsmith.tracing_context(enabled=traced):
        for _ in range(runs):
            await agent.run(TASK)
    took = time.perf_counter() - wall
    if traced:
        await asyncio.to_thread(wait_for_all_tracers)
    return (time.process_time() - cpu) / runs, took / runs


async def main(url: str, rounds: int, runs: int) -> None:
    """Measure in turns and print a table."""
    settings = Settings(
        actor_model="m", planner_model="m", evaluator_model="critic", reflector_model="reflector", max_attempts=2
    )
    connection = ConnectionSettings(base_url=url, api_key="any")
    without: list[tuple[float, float]] = []
    traced: list[tuple[float, float]] = []
    async with open_reflexion(settings, connection=connection, database_url="memory://") as agent:
        for number in range(rounds + 1):
            pair = await measure(agent, runs, traced=False), await measure(agent, runs, traced=True)
            if number:
                without.append(pair[0])
                traced.append(pair[1])
    print("              without ms   traced ms   ratio")
    for name, kind in (("CPU", 0), ("wall clock", 1)):
        print(
            f"{name:12}  {_ms(without, kind):10.1f}   {_ms(traced, kind):9.1f}   "
            f"{median(mine[kind] / other[kind] for mine, other in zip(traced, without, strict=True)):5.2f}"
        )


def _ms(times: Sequence[tuple[float, float]], kind: int) -> float:
    return median(took[kind] for took in times) * 1e3


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5, help="per round")
    given = parser.parse_args()
    here, there = multiprocessing.Pipe()
    servers = multiprocessing.get_context("spawn").Process(target=serve, args=(there,))
    servers.start()
    try:
        base_url, environment = here.recv()
        os.environ.update(environment)
        asyncio.run(main(base_url, given.rounds, given.runs))
    finally:
        here.send("stop")
        print(f"{here.recv():,} traced runs arrived")
        servers.join()
