"""The agent as a node of another graph: that keeps the state, the agent keeps its lessons.

uv run python examples/as_subgraph.py
"""
# ruff: noqa: T201

import asyncio
from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from reflexion.graphs import open_reflexion


class Order(TypedDict, total=False):
    """The state of the graph around it; `task`, `tests`, `answer` and `passed` are the agent's as well."""

    function: str
    task: str
    tests: str
    answer: str
    passed: bool
    report: str


def specify(state: Order) -> Order:
    return {
        "task": f"Write {state['function']}(n), which tells whether an integer is even.",
        "tests": f"assert {state['function']}(4)\nassert not {state['function']}(7)",
    }


def report(state: Order) -> Order:
    return {"report": f"{'Ready' if state['passed'] else 'Not ready'}:\n{state['answer']}"}


async def main() -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "order-1"}}
    async with open_reflexion() as agent:
        graph = StateGraph(Order)
        graph.add_sequence([("specify", specify), ("solve", agent.graph), ("report", report)])
        graph.add_edge(START, "specify")
        orders = graph.compile(checkpointer=InMemorySaver())
        given: Order = {"function": "is_even"}
        async for _, event in orders.astream(given, config, stream_mode="custom", subgraphs=True):
            if event["event"] == "scored":
                print(f"attempt {event['attempt']} scored {event['score']:.2f}")
        print((await orders.aget_state(config)).values["report"])


asyncio.run(main())
