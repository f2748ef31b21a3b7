"""A process that writes tasks, batch after batch, once the other side says so; see test_sqlite_index.py."""

import asyncio
import sys
from pathlib import Path

from langgraph.store.base import PutOp

from reflexion.memory import open_persistence

sys.path.insert(0, str(Path(__file__).parent))
from hashed import Hashed

NAMESPACE = ("reflexion", "lessons", "shared")


def task(name: str, number: int) -> str:
    return f"Solve puzzle {number % 7} of {name}{number}."


async def main(url: str, name: str, count: int) -> None:
    async with open_persistence(url, embeddings=Hashed()) as persistence:
        print("ready", flush=True)
        sys.stdin.readline()
        for start in range(0, count, 5):
            numbers = range(start, start + 5)
            await persistence.store.abatch(
                [PutOp(NAMESPACE, f"{name}{n}", {"task": task(name, n)}, index=["task"]) for n in numbers]
            )
            print(start, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
