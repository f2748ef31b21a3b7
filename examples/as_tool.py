"""The agent as a tool of another agent, which calls it twice at once.

uv run python examples/as_tool.py
"""
# ruff: noqa: T201

import asyncio

from langchain_core.messages import AIMessage
from langchain_core.messages.tool import tool_call
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from reflexion.graphs import as_tool, open_reflexion


def assistant(state: MessagesState) -> MessagesState:
    """Stands where a chat model would: `model.bind_tools([coder])` makes such calls by itself."""
    even = {"task": "Write is_even(n).", "tests": "assert is_even(4)\nassert not is_even(7)"}
    prime = {"task": "Write is_prime(n).", "tests": "assert is_prime(7)\nassert not is_prime(9)"}
    calls = [tool_call(name="coder", args=even, id="1"), tool_call(name="coder", args=prime, id="2")]
    return {"messages": [AIMessage("", tool_calls=calls)]}


async def main() -> None:
    async with open_reflexion() as agent:
        coder = as_tool(
            agent, name="coder", description="Writes one Python function that passes tests.", max_attempts=2
        )
        graph = StateGraph(MessagesState)
        graph.add_sequence([("assistant", assistant), ("tools", ToolNode([coder]))])
        graph.add_edge(START, "assistant")
        state = await graph.compile().ainvoke({"messages": []})
    for message in state["messages"][1:]:
        print(f"{message.content}\n{message.artifact['usage']['requests']} requests\n")


asyncio.run(main())
