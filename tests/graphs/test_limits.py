"""LangGraph's own limit never has the say."""

import os
import subprocess
import sys

import pytest
from loop_bench import Bench

from reflexion.graphs import ConfigurationError

SCRIPT = """
import asyncio, sys
from reflexion.graphs import Settings, open_reflexion
from reflexion.models import ConnectionSettings

async def main(url, how, database):
    settings = Settings(model="actor-m", evaluator_model="critic-m", reflector_model="reflector-m",
                        planner_model="planner-m", max_attempts=12)
    connection = ConnectionSettings(base_url=url, api_key="any", max_retries=0)
    async with open_reflexion(settings, connection=connection, database_url=database) as agent:
        if how == "run":
            print((await agent.run("Sum a list.")).stop_reason)
        else:
            config = {"configurable": {"thread_id": "t"}}
            print((await agent.graph.ainvoke({"task": "Sum a list."}, config, context=settings))["stop_reason"])

asyncio.run(main(*sys.argv[1:]))
"""


ALL = {"actor": 12, "critic": 12, "reflector": 11, "planner": 11}


@pytest.mark.parametrize("how", ["run", "graph"])
def test_a_constant_score_takes_exactly_the_attempts_allowed_where_langgraphs_default_is_25(bench, how):
    environment = os.environ | {"LANGGRAPH_DEFAULT_RECURSION_LIMIT": "25"}
    arguments = [sys.executable, "-c", SCRIPT, bench.server.base_url, how, bench.url]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert (done.stdout, done.stderr) == ("max_attempts\n", "")
    assert bench.counts() == ALL


@pytest.mark.parametrize("how", ["run", "graph"])
async def test_a_constant_score_takes_exactly_the_attempts_allowed(bench: Bench, how):
    async with bench.agent(max_attempts=12) as agent:
        if how == "run":
            await agent.run("Sum a list.", thread="t")
        else:
            await agent.graph.ainvoke({"task": "Sum a list."}, {"configurable": {"thread_id": "t"}})
    assert bench.counts() == ALL


@pytest.mark.parametrize(("limit", "attempts"), [(5, 1), (8, 1), (9, 2), (10, 2), (13, 3)])
async def test_a_smaller_limit_of_the_callers_ends_with_the_best_attempt(bench: Bench, limit, attempts):
    config = {"configurable": {"thread_id": "t"}, "recursion_limit": limit}
    async with bench.agent() as agent:
        settings = bench.settings(max_attempts=12)
        state = await agent.graph.ainvoke({"task": "Sum a list."}, config, context=settings)
    assert (state["stop_reason"], state["answer"], state["score"]) == ("max_attempts", "answer 1", 0.4)
    assert bench.counts()["actor"] == attempts


async def test_a_limit_without_room_for_one_attempt_is_refused_before_anything_is_paid_for(bench):
    config = {"configurable": {"thread_id": "t"}, "recursion_limit": 4}
    async with bench.agent() as agent:
        with pytest.raises(ConfigurationError, match="recursion limit"):
            await agent.graph.ainvoke({"task": "Sum a list."}, config, context=bench.settings())
    assert bench.server.count == 0
