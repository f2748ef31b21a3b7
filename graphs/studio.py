"""The graph as LangGraph's server and Studio load it: without a checkpointer or store of its own."""

from reflexion.graphs.build import build_graph
from reflexion.graphs.installation import read_installation

_installation = read_installation()
graph = build_graph(connection=_installation, prompts=_installation.prompts).compile(name="reflexion")
