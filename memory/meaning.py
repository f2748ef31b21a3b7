"""Vectors of texts, by a model that may fail, and that may not be the one whose vectors are kept already."""

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np
from langchain_core.embeddings import Embeddings

from reflexion.memory.cells import Vectors, unit

log = logging.getLogger(__name__)

PROBE: Final = "Write a function that returns the sum of a list of numbers, and check the empty list."
"""Models are told apart by what they make of this."""
SAME_MODEL: Final = 0.99
"""Cosine of two vectors of the probe: machines differ in their last digits, models in much more."""


class Meaning:
    """Finds the vectors of texts, or none: what they are wanted for goes on without them."""

    def __init__(self, embeddings: Embeddings | None) -> None:
        self.available = embeddings is not None
        """Whether there is a model at all."""
        self._embeddings = embeddings
        self._probe: Vectors | None = None
        self._failing = False
        self._warned = False

    async def vectors(self, texts: Sequence[str]) -> list[Vectors] | None:
        """A vector for each text; None where the model fails, which is logged when it begins to."""
        if self._embeddings is None or not texts:
            return None
        asked = [*texts, PROBE] if self._probe is None else list(texts)
        try:
            found = np.asarray(await self._embeddings.aembed_documents(asked), np.float32)
            _check(found, len(asked))
        except Exception as error:  # noqa: BLE001 - whatever a caller's own model raises
            if not self._failing:
                log.warning(
                    "the embedding model fails (%s: %s): items are kept, and found by their words alone; "
                    "those without a vector get it when the database is opened again",
                    type(error).__name__, " ".join(str(error).split())[:300],
                )  # fmt: skip
            self._failing = True
            return None
        self._failing = False
        if self._probe is None:
            self._probe = found[-1]
        return list(found[: len(texts)])

    @property
    def probe(self) -> bytes:
        """What tells this model from others; only after it has made a vector."""
        assert self._probe is not None
        return self._probe.tobytes()

    def made(self, probe: bytes) -> bool:
        """Whether a probe that was kept is this model's; warns once where it is another's."""
        assert self._probe is not None
        kept = np.frombuffer(probe, np.float32)
        same = len(kept) == len(self._probe) and float(unit(kept) @ unit(self._probe)) >= SAME_MODEL
        if not same and not self._warned:
            self._warned = True
            log.warning(
                "the vectors in this database are of another embedding model: tasks are found by their words alone; "
                "`reflexion memory reindex` makes all vectors anew, or open it with the model that it had"
            )
        return same


def _check(vectors: Vectors, texts: int) -> None:
    if vectors.ndim != 2 or len(vectors) != texts or not np.isfinite(vectors).all():
        raise ValueError(f"{texts} texts became numbers of the shape {vectors.shape}, or some that are none")
