"""The examples of docs/studio.md, run against the server."""

import re

import pytest
from dev_server import MODEL, ROOT
from langgraph_sdk import get_client

from reflexion.graphs import open_reflexion

RIGHT = "```python\ndef is_prime(n):\n    return n > 1 and all(n % i for i in range(2, n))\n```"
WRONG = "```python\ndef is_prime(n):\n    return n > 1\n```"


@pytest.fixture
def page() -> dict:
    namespace: dict = {}
    for code in re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "studio.md").read_text(), re.DOTALL | re.MULTILINE
    ):
        exec(compile(code, "docs/studio.md", "exec"), namespace)
    return namespace


async def test_the_examples_do_what_the_page_says(page, client, server, capsys):
    server.endpoint.script(MODEL, WRONG, {"improvement": "Look for divisors."}, "1. Divide.", RIGHT)
    await page["careful"](server.url)
    assert "is_prime" in capsys.readouterr().out
    (thread, *_) = await client.threads.search(sort_by="created_at", sort_order="desc", limit=1)
    server.endpoint.script(MODEL, RIGHT)
    result = await page["with_another_plan"](client, thread["thread_id"], "1. Try every divisor.")
    assert result["plan"] == "1. Try every divisor."
    assert "Try every divisor." in str(server.endpoint.requests_for(MODEL)[-1].body)
    server.endpoint.script(MODEL, "Paris", {"score": 9})
    assert await page["solve"](server.url, "Capital of France?") == "Paris"


async def test_a_run_is_reviewed_as_the_page_says(page, client, server):
    server.endpoint.script(MODEL, WRONG, {"improvement": "Look for divisors."}, "1. Divide.", RIGHT)
    task = {"task": "Write is_prime(n).", "tests": "assert is_prime(7)\nassert not is_prime(9)"}
    decisions = {"attempt": {"action": "edit", "reflection": "Try all divisors."}, "answer": "approve"}
    asked = []

    def decide(request):
        asked.append((request["about"], request["attempt"]))
        return decisions[request["about"]]

    result = await page["reviewed"](client, task, decide)
    assert (result["passed"], asked) == (True, [("attempt", 1), ("answer", 2)])
    assert "Try all divisors." in str(server.endpoint.requests_for(MODEL)[-1].body)


async def test_a_thread_of_python_is_shown_by_its_id(page, server):
    thread = "7c0ffee0-0000-4000-8000-000000000001"
    async with open_reflexion(
        database_url=server.database_url, evaluator=lambda answer: 1.0, actor=lambda given: "done"
    ) as agent:
        await agent.run("Say done.", thread=thread)
    async with get_client(url=server.url) as client:
        await page["show"](client, thread)
        assert (await client.threads.get_state(thread))["values"]["answer"] == "done"
