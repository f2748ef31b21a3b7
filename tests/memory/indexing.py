"""A process that writes a batch of tasks for each line that the other side says; see test_sqlite_index.py."""

import asyncio
import sys
from pathlib import Path

from langgraph.store.base import PutOp

from reflexion.memory import open_persistence

sys.path.insert(0, str(Path(__file__).parent))
from hashed import Hashed

NAMESPACE = ("reflexion", "lessons", "shared")
BATCH = 5


def task(name: str, number: int) -> str:
    return f"Solve puzzle {number % 7} of {name}{number}."


async def main(url: str, name: str) -> None:
    async with open_persistence(url, embeddings=Hashed()) as persistence:
        print("ready", flush=True)
        for batch, _ in enumerate(sys.stdin):
            numbers = range(batch * BATCH, (batch + 1) * BATCH)
            await persistence.store.abatch(
                [PutOp(NAMESPACE, f"{name}{n}", {"task": task(name, n)}, index=["task"]) for n in numbers]
            )
            print(batch, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
