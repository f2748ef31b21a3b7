"""`reflexion graph`."""

from pathlib import Path

from reflexion.graphs import ConfigurationError, build_graph


def draw(png: Path | None) -> int:
    """Print the graph as Mermaid, or write a picture of it."""
    graph = build_graph().compile().get_graph()
    if png is None:
        print(graph.draw_mermaid().strip())  # noqa: T201
        return 0
    from reflexion.cli.picture import save_png  # noqa: PLC0415 - the only use of Pillow

    try:
        save_png(graph, png)
    except OSError as error:
        raise ConfigurationError(f"--png {png}: cannot be written: {error}") from error
    return 0
