"""What texts mean, as vectors."""

from langchain_core.embeddings import Embeddings


def chosen(embeddings: Embeddings | bool) -> Embeddings | None:
    """The caller's own; for True the embedded one where it can be had, for False none."""
    return None if isinstance(embeddings, bool) else embeddings
