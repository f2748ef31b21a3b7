"""What a run gives up as its money runs short, in the order that docs/runs.md states."""

from decimal import Decimal

import pytest
from loop_bench import BAD, LESSON, Bench

from reflexion.graphs import ConfigurationError
from reflexion.models import Usage
from reflexion.nodes import Settings
from reflexion.nodes.degradation import Measures, in_order, share_left

ROUND = ["actor-m", "critic-m", "reflector-m", "planner-m"]


@pytest.mark.parametrize(
    ("left", "given_up"),
    [(1.0, 0), (0.5, 0), (0.499, 1), (0.25, 1), (0.249, 2), (0.1, 2), (0.099, 3), (0.0, 3)],
)
def test_the_order(left, given_up):
    steps = in_order(left)
    assert [steps.cheaper_model, steps.no_planner, steps.no_further_attempt] == [n < given_up for n in range(3)]


@pytest.mark.parametrize(
    ("budget", "left"),
    [
        ({}, 1.0),
        ({"budget_requests": 10}, 0.1),
        ({"budget_tokens": 400}, 0.25),
        ({"budget_usd": "0.6"}, 0.5),
        ({"budget_usd": "0.6", "budget_requests": 10, "budget_tokens": 400}, 0.1),
        ({"budget_tokens": 100}, 0.0),
    ],
)
def test_the_share_is_exact_and_of_whatever_is_shortest(budget, left):
    usage = Usage(requests=9, prompt_tokens=200, completion_tokens=100, cost_usd=Decimal("0.3"))
    assert share_left(usage, Settings(**budget)) == left


def test_an_unknown_price_shortens_nothing():
    assert share_left(Usage(cost_usd=None), Settings(budget_usd=1)) == 1.0


async def test_a_run_gives_up_its_model_then_its_planner_then_further_attempts(bench: Bench):
    attempts = [[f"cheap {n}", BAD, {"improvement": LESSON}] for n in range(3)]
    first, second, third = attempts
    bench.server.script("cheap-m", *first, "1. A plan.", *second, *third[:2])
    async with bench.agent(max_attempts=50, budget_requests=22, cheaper_model="cheap-m") as agent:
        result = await agent.run("Sum a list.")
    # After 12 of 22 requests less than half is left, after 17 less than a quarter, after 20 less than a tenth.
    assert [request.model for request in bench.server.requests] == 3 * ROUND + 9 * ["cheap-m"]
    assert [bool(attempt.plan) for attempt in result.attempts] == [False, True, True, True, True, False]
    assert (result.stop_reason, result.stop_detail) == (
        "budget",
        "5% of the budget is left, too little for another attempt",
    )
    assert (result.answer, result.usage.by_model["cheap-m"].requests) == ("answer 1", 9)


async def test_without_a_cheaper_model_each_role_keeps_its_own(bench):
    async with bench.agent(max_attempts=50, budget_requests=22) as agent:
        await agent.run("Sum a list.")
    assert [request.model for request in bench.server.requests] == [*4 * ROUND, *ROUND[:3], *ROUND[:2]]


async def test_a_policy_of_ones_own_takes_its_place(bench):
    shares = []

    def nothing(left: float) -> Measures:
        shares.append(left)
        return Measures()

    own = {"degradation": nothing}
    async with bench.agent(max_attempts=50, budget_requests=22, cheaper_model="cheap-m", own=own) as agent:
        result = await agent.run("Sum a list.")
    assert [request.model for request in bench.server.requests] == [*5 * ROUND, *ROUND[:2]]
    assert (result.stop_reason, result.stop_detail) == ("budget", "22 of 22 requests are made")
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (1.0, 0.0)


async def test_a_cheaper_model_without_a_price_is_refused_before_anything_is_paid_for(bench):
    prices = {model: {"input": 1, "output": 1} for model in ROUND}
    async with bench.agent(cheaper_model="cheap-m", budget_usd=1, connection={"prices": prices}) as agent:
        with pytest.raises(ConfigurationError, match="cheap-m"):
            await agent.run("Sum a list.")
    assert bench.server.count == 0
