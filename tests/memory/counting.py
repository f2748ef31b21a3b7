"""Processes that leave something in one memory at the same time; see test_memory_processes.py."""

import asyncio
import sys

from reflexion.memory import Episode, Memory, open_persistence, task_key


async def main(url: str, key: str, name: str, runs: int) -> None:
    """Use a lesson in so many runs, once the other side says so."""
    async with open_persistence(url) as persistence:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(runs):
            episode = Episode(
                run_id=f"{name}-{number}", thread_id=name, task="Sum a list.", task_key=task_key("Sum a list."),
                scores=[1.0], first_passed=True, passed=True, stop_reason="passed", cost_usd=None, lessons_used=[key],
                lessons_withheld=[], lessons_learned=[], at=0.0,
            )  # fmt: skip
            await Memory(persistence.store).remember(episode)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
