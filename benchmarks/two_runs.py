"""Two runs of one task on two threads, and what the second one's first request to the model held.

The embedded model answers; a recording server stands in front of it, so that the requests shown are those
that really went out.

    uv run python benchmarks/two_runs.py
"""

import argparse
import asyncio
import json
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from reflexion.graphs import Result, Settings, open_reflexion
from reflexion.models import ConnectionSettings
from reflexion.models.embedded import EmbeddedModel, LocalServer
from reflexion.testing import FakeOpenAI, Reply

HERE = Path(__file__).parent
TASK = "Write rolling_max(numbers), which returns for each position of a list the largest number so far."
TESTS = HERE.parent / "examples" / "rolling_max.py"


def forwarded(embedded: LocalServer) -> Any:
    """A reply that asks the embedded model."""

    def reply(body: dict[str, Any]) -> Reply:
        request = urllib.request.Request(
            f"{embedded.base_url}/chat/completions",
            data=json.dumps(body | {"stream": False}).encode(),
            headers={"Authorization": f"Bearer {embedded.api_key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return Reply(body=json.load(answer))

    return reply


def show(title: str, result: Result) -> None:
    """The attempts of a run."""
    print(f"\n== {title}: {result.stop_reason}, {result.usage.tokens:,} tokens")
    for lesson in result.lessons_used:
        print(f"recalled ({lesson['similarity']:.2f}): {lesson['text']}")
    for attempt in result.attempts:
        print(f"attempt {attempt.number}: score {attempt.score:.2f}")
        if not attempt.passed:
            print("   " + attempt.feedback.replace("\n", "\n   "))
        if attempt.reflection:
            print(f"   reflection: {attempt.reflection}")
    for lesson in result.lessons_learned:
        print(f"learned: {lesson['text']}")


async def main(task: str, tests: str) -> None:
    """Run the task twice."""
    embedded = EmbeddedModel()
    local = await embedded.start()
    with FakeOpenAI(patience_s=600) as recorder, tempfile.TemporaryDirectory() as folder:
        recorder.default(local.model, forwarded(local))
        connection = ConnectionSettings(base_url=recorder.base_url)
        settings = Settings(model=local.model, threshold=1, max_tokens=1024, temperature=0, memory_control=0)
        agent = open_reflexion(settings, connection=connection, database_url=f"sqlite:///{folder}/memory.sqlite")
        async with agent:
            show("first thread", await agent.run(task, tests=tests, thread="first", max_attempts=5))
            before = recorder.count
            show("second thread", await agent.run(task, tests=tests, thread="second", max_attempts=5))
        print("\n== the second run's first request, as the server got it")
        for message in recorder.requests[before].body["messages"]:
            print(f"[{message['role']}]\n{message['content']}")
    await embedded.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default=TASK)
    parser.add_argument("--tests", type=Path, default=TESTS)
    given = parser.parse_args()
    asyncio.run(main(given.task, given.tests.read_text(encoding="utf-8")))
