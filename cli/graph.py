"""`reflexion graph`."""

from pathlib import Path

from langchain_core.runnables.graph import Edge, Graph
from langgraph.graph import END, START

from reflexion.graphs import ConfigurationError, build_graph

ENDS = {START: "START([start])", END: "END([end])"}


def draw(png: Path | None) -> int:
    """Print the graph as Mermaid, or write a picture of it."""
    graph = build_graph().compile().get_graph()
    if png is None:
        print(mermaid(graph))  # noqa: T201
        return 0
    from reflexion.cli.picture import save_png  # noqa: PLC0415 - the only use of Pillow

    try:
        save_png(graph, png)
    except OSError as error:
        raise ConfigurationError(f"--png {png}: cannot be written: {error}") from error
    return 0


def mermaid(graph: Graph) -> str:
    """The graph, an edge a line in the order in which a run comes to them, choices dotted and labelled."""
    return "\n".join(["graph LR", *(f"    {_line(edge)}" for edge in _in_order(graph))])


def _in_order(graph: Graph) -> list[Edge]:
    found: list[Edge] = []

    def follow(node: str) -> None:
        for edge in sorted((edge for edge in graph.edges if edge.source == node), key=_rank):
            known = any(edge.target in (other.source, other.target) for other in found)
            found.append(edge)
            if not known:
                follow(edge.target)

    follow(START)
    return found


def _rank(edge: Edge) -> tuple[bool, str]:
    return edge.data is None, str(edge.data)


def _line(edge: Edge) -> str:
    source, target = (ENDS.get(node, node) for node in (edge.source, edge.target))
    label = f" {edge.data} ." if edge.data else ""
    return f"{source} -.{label}-> {target}" if edge.conditional else f"{source} --> {target}"
