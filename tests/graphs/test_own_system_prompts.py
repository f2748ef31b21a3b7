"""Prompts that come with the settings take the place of the files' system messages, and of nothing else."""

import pytest
from loop_bench import GOOD, LESSON, Bench

OWN = {
    "actor": "Act.\n\n{{form}}\n\nRules:\n{{rules}}",
    "evaluator": "Judge by:\n{{criteria}}\n\n{{each}}",
    "reflector": 'Reflect. Reply with {"improvement": "…"}.',
    "planner": "Plan.",
}
MODELS = {"actor": "actor-m", "evaluator": "critic-m", "reflector": "reflector-m", "planner": "planner-m"}


def system(bench: Bench, role: str, number: int = 0) -> str:
    return bench.server.requests_for(MODELS[role])[number].body["messages"][0]["content"]


def user(bench: Bench, role: str, number: int = 0) -> str:
    return bench.server.requests_for(MODELS[role])[number].body["messages"][1]["content"]


@pytest.mark.parametrize("lang", ["en", "de"])
@pytest.mark.parametrize("style", ["fresh", "revise"])
async def test_each_role_gets_its_own_text_filled_in(bench, lang, style):
    bench.server.script("critic-m", {"score": 4, "weaknesses": "{{task}}"}, GOOD)
    prompts = {f"{role}_prompt": text for role, text in OWN.items()}
    async with bench.agent(**prompts, lang=lang, attempt_style=style) as agent:
        result = await agent.run("Explain {{rules}} and {x}.", criteria=["It is short."])
    assert result.passed
    assert system(bench, "actor").startswith("Act.\n\n")
    assert "Rules" not in system(bench, "actor"), "nothing is learned yet"
    assert system(bench, "actor", 1).endswith(f"Rules:\n- {LESSON}")
    assert system(bench, "evaluator").startswith("Judge by:\n1. It is short.")
    assert system(bench, "reflector") == OWN["reflector"]
    assert system(bench, "planner") == "Plan."
    assert user(bench, "actor").startswith("Explain {{rules}} and {x}.")
    assert ("answer 1" in user(bench, "actor", 1)) == (style == "revise")
    assert "{{task}}" in user(bench, "planner")


async def test_a_role_without_a_text_of_its_own_keeps_the_file(bench):
    async with bench.agent(planner_prompt="Plan.", max_attempts=2) as agent:
        await agent.run("Explain.")
    assert system(bench, "planner") == "Plan."
    assert system(bench, "actor").startswith("You are a careful expert.")
