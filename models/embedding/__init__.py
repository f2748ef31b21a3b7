"""What texts mean, as vectors."""

import logging
import threading

from langchain_core.embeddings import Embeddings

from .minilm import DIMENSIONS, EmbeddingError, MiniLM, find_weights

__all__ = ["DIMENSIONS", "EmbeddingError", "MiniLM", "chosen", "find_weights"]

logger = logging.getLogger(__name__)


def chosen(embeddings: Embeddings | bool) -> Embeddings | None:
    """The caller's own; for True the embedded one where it can be had, for False none.

    The embedded one is the same for the whole process. The first call hashes its weights, which takes 30 ms; where
    they or a library are missing or damaged, it warns once and there are no embeddings.
    """
    if isinstance(embeddings, bool):
        return _embedded.get() if embeddings else None
    return embeddings


class _Embedded:
    """The process's own MiniLM, looked for once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sought = False
        self._found: MiniLM | None = None

    def get(self) -> MiniLM | None:
        with self._lock:
            if not self._sought:
                self._sought = True
                try:
                    self._found = MiniLM(find_weights())
                except EmbeddingError as error:
                    logger.warning("lessons are found by their words alone: %s", error)
            return self._found


_embedded = _Embedded()
