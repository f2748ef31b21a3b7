"""Vectors of texts, by a model that may fail, and that may not be the one whose vectors are kept already."""

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np
from langchain_core.embeddings import Embeddings

from reflexion.memory.cells import Vectors, unit
from reflexion.models.redaction import redacted

log = logging.getLogger(__name__)

PROBE: Final = "Write a function that returns the sum of a list of numbers, and check the empty list."
"""Models are told apart by what they make of this."""
SAME_MODEL: Final = 0.99
"""Cosine of two vectors of the probe: machines differ in their last digits, models in much more."""
CAUGHT_UP: Final = 1_000
"""Texts without a vector that get one when a database is opened, which takes some 10 s; the next opening goes on."""


class Meaning:
    """Finds the vectors of texts, or none: what they are wanted for goes on without them."""

    def __init__(self, embeddings: Embeddings | None) -> None:
        self.available = embeddings is not None
        """Whether there is a model at all."""
        self._embeddings = embeddings
        self._probe: Vectors | None = None
        self._failing = False
        self._warned = False

    async def ready(self) -> bool:
        """Load the model, so that `probe` and `made` can be asked; False where it fails, or there is none."""
        if self._probe is None and (found := await self._made([PROBE])):
            self._probe = found[0]
        return self._probe is not None

    async def works(self) -> bool:
        """Whether it makes a vector at this moment."""
        return await self.vectors([PROBE]) is not None

    async def vectors(self, texts: Sequence[str]) -> list[Vectors] | None:
        """A vector for each text; None where the model fails, which is logged when it begins to."""
        return await self._made(texts) if texts and await self.ready() else None

    async def _made(self, texts: Sequence[str]) -> list[Vectors] | None:
        if self._embeddings is None:
            return None
        try:
            found = np.asarray(await self._embeddings.aembed_documents(list(texts)), np.float32)
            _check(found, len(texts), None if self._probe is None else len(self._probe))
        except Exception as error:  # noqa: BLE001 - whatever a caller's own model raises
            if not self._failing:
                log.warning(
                    "the embedding model fails (%s: %s): items are kept, and found by their words alone; "
                    "those without a vector get it when the database is opened again",
                    type(error).__name__, redacted(" ".join(str(error).split()))[:300],
                )  # fmt: skip
            self._failing = True
            return None
        self._failing = False
        return list(found)

    @property
    def probe(self) -> Vectors:
        """What tells this model from others; only after it has made a vector."""
        assert self._probe is not None
        return self._probe

    def made(self, kept: Vectors) -> bool:
        """Whether a probe that was kept is this model's; warns once where it is another's."""
        assert self._probe is not None
        same = len(kept) == len(self._probe) and float(unit(kept) @ unit(self._probe)) >= SAME_MODEL
        if not same and not self._warned:
            self._warned = True
            log.warning(
                "the vectors in this database are of another embedding model: tasks are found by their words alone; "
                "`reflexion memory reindex` makes all vectors anew, or open it with the model that it had"
            )
        return same


def _check(vectors: Vectors, texts: int, dimensions: int | None) -> None:
    fits = vectors.ndim == 2 and len(vectors) == texts and dimensions in {None, vectors.shape[1]} and vectors.size
    if not fits or not np.isfinite(vectors).all():
        raise ValueError(f"{texts} texts became numbers of the shape {vectors.shape}, or some that are none")
