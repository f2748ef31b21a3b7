"""`reflexion graph`."""

from pathlib import Path

from reflexion.graphs import ConfigurationError, build_graph


def mermaid() -> str:
    """The graph as Mermaid text."""
    return build_graph().compile().get_graph().draw_mermaid()


def draw(png: Path | None) -> int:
    """Print the graph as Mermaid, or write a picture of it."""
    if png is None:
        print(mermaid().strip())  # noqa: T201
        return 0
    try:
        build_graph().compile().get_graph().draw_mermaid_png(output_file_path=str(png))
    except Exception as error:
        raise ConfigurationError(
            f"--png {png}: the picture is drawn by mermaid.ink, which could not be reached ({type(error).__name__}); "
            "paste the output of `reflexion graph` into any Mermaid viewer instead"
        ) from error
    return 0
