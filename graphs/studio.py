"""The graph as LangGraph's server and Studio load it: without a checkpointer or store of its own."""

from reflexion.graphs.build import build_graph

graph = build_graph().compile(name="reflexion")
