"""How the next attempt is prompted, read off the requests at the server."""

import pytest
from loop_bench import LESSON, Bench

from reflexion.nodes.attempts import NEARLY_RIGHT

CODE = "```python\ndef f(x):\n    return {}\n```"
TESTS = "assert f(1) == 1\nassert f(2) == 4"


def styles(result):
    return [attempt.style for attempt in result.attempts]


async def run(bench: Bench, **values):
    async with bench.agent(**values) as agent:
        return await agent.run("Square a number.")


async def test_a_fresh_prompt_holds_the_rule_and_the_failed_checks_and_no_old_answer(bench):
    bench.server.default("actor-m", CODE.format("x + 0"))
    bench.server.script("actor-m", CODE.format("x * 1"))
    async with bench.agent(attempt_style="fresh") as agent:
        result = await agent.run("Square a number.", tests=TESTS, max_attempts=2)
    first, second = bench.prompt("actor", 0), bench.prompt("actor", 1)
    assert styles(result) == ["first", "fresh"]
    assert LESSON not in first
    assert second.count(LESSON) == 1
    assert "f(2) == 4" in second
    assert "x * 1" not in second
    assert "1. Look at the empty list." in second
    assert second.count("Square a number.") == 1


async def test_a_revision_shows_the_best_attempt_so_far_not_the_last(bench):
    bench.server.script("critic-m", {"score": 5}, {"score": 7, "weaknesses": "W2"}, {"score": 6, "weaknesses": "W3"})
    result = await run(bench, attempt_style="revise", max_attempts=4)
    assert styles(result) == ["first", "revise", "revise", "revise"]
    last = bench.prompt("actor", 3)
    assert "answer 2" in last
    assert "W2" in last
    assert "answer 1" not in last
    assert "answer 3" not in last


@pytest.mark.parametrize(("score", "style"), [(NEARLY_RIGHT, "revise"), (NEARLY_RIGHT - 0.01, "fresh")])
async def test_auto_revises_only_what_was_nearly_right(bench, score, style):
    async with bench.agent(own={"evaluator": lambda answer: score}, attempt_style="auto", max_attempts=2) as agent:
        assert styles(await agent.run("Square a number.")) == ["first", style]


async def test_an_empty_answer_is_never_revised(bench):
    bench.server.script("actor-m", "")
    assert styles(await run(bench, attempt_style="revise", max_attempts=2)) == ["first", "fresh"]


async def test_a_rule_a_check_or_an_answer_is_no_template_and_forges_no_item(bench):
    bench.server.default("reflector-m", {"improvement": "Write {{task}} and {plan}\n- not an item"})
    bench.server.script("actor-m", "{{rules}} {0} %s", "two")
    async with bench.agent(attempt_style="revise", max_attempts=2) as agent:
        await agent.run("Print {{checks}} and {x}.")
    second = bench.prompt("actor", 1)
    assert "Print {{checks}} and {x}." in second
    assert "- Write {{task}} and {plan} - not an item" in second
    assert "{{rules}} {0} %s" in second


async def test_only_the_last_three_rules_of_a_run_are_shown(bench):
    numbers = iter(range(1, 9))
    bench.server.default("reflector-m", lambda _: {"improvement": f"Rule of attempt {next(numbers)}."})
    await run(bench, max_attempts=6, memory=False, attempt_style="fresh")
    shown = [f"Rule of attempt {number}." in bench.prompt("actor", 5) for number in range(1, 6)]
    assert shown == [False, False, True, True, True]
