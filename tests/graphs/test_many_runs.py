"""Many runs at once: none is lost, none is billed twice, and the endpoint never sees more than it allows."""

import asyncio
import re

import pytest
from loop_bench import Bench

from reflexion.models.ledger import sums
from reflexion.testing import Reply, count_tokens, prompt_tokens

AT_ONCE = 10
DELAY_S = 0.047


class Billing:
    """A model for all roles that keeps its own books: by task, the tokens of each request and its reply."""

    def __init__(self) -> None:
        self.bills: dict[int, list[int]] = {}

    def __call__(self, body):
        task = int(re.search(r"number (\d+)\.", body["messages"][-1]["content"])[1])
        bill = self.bills.setdefault(task, [])
        if "response_format" in body:
            answer = '{"improvement": "Look on the next page."}'
        else:
            # Every fourth run needs a second attempt.
            answer = "not found" if task % 4 == 0 and not bill else f"The answer is {task}"
        bill.append(prompt_tokens(body) + count_tokens(answer))
        return Reply(answer, delay_s=DELAY_S)


async def many(bench: Bench, number: int) -> None:
    billing = Billing()
    bench.server.default("m", billing)
    models = dict.fromkeys(("actor_model", "reflector_model", "planner_model"), "m")
    own = {"evaluator": lambda answer: float(answer.startswith("The answer"))}
    async with bench.agent(own=own, connection={"concurrency": AT_ONCE}, **models) as agent:
        bench.server.hold("m")
        runs = [asyncio.create_task(agent.run(f"Look up number {n}.", batch="b")) for n in range(number)]
        await bench.server.wait_for_async("m", AT_ONCE)
        bench.server.release("m")
        results = await asyncio.gather(*runs)
        lines = await agent.persistence.ledger.lines(batch_id="b")
    assert [result.answer for result in results] == [f"The answer is {n}" for n in range(number)]
    assert [len(result.attempts) for result in results] == [2 if n % 4 == 0 else 1 for n in range(number)]
    assert bench.server.peak_concurrency == AT_ONCE

    by_run = sums(lines, "run_id")
    assert len(by_run) == number
    for n, result in enumerate(results):
        line = by_run[result.run_id]
        assert line.tokens == result.usage.tokens == sum(billing.bills[n])
        assert line.requests == result.usage.requests == len(billing.bills[n])
    assert len(lines) == len({line["id"] for line in lines}) == bench.server.count
    assert {(line["outcome"], line["estimated"]) for line in lines} == {("ok", False)}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_hundred_runs_at_once(server, sqlite_url, kind):
    await many(Bench(server, sqlite_url if kind == "sqlite" else "memory://"), 100)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_thousand_runs_at_once(server, database_url):
    await many(Bench(server, database_url), 1_000)
