"""An embedding model for tests: words as numbers, of which some mean the same."""

import hashlib
import re

import numpy as np
from langchain_core.embeddings import Embeddings

SAME = {"total": "sum", "sums": "sum", "adds": "sum", "integers": "numbers", "values": "numbers"}


class Hashed(Embeddings):
    """Deterministic vectors; another `seed` is another model. Can be told to fail; remembers what it was given."""

    def __init__(self, dimensions: int = 64, seed: str = "") -> None:
        self.dimensions, self.seed = dimensions, seed
        self.failing = False
        self.given: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.failing:
            raise ConnectionError("no model here")
        self.given += texts
        return [self._vector(text).tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def cosine(self, one: str, other: str) -> float:
        a, b = self._vector(one), self._vector(other)
        return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-9))

    def _vector(self, text: str) -> np.ndarray:
        words = [SAME.get(word, word) for word in re.findall(r"\w+", text.casefold())]
        parts = [np.random.default_rng(self._number(word)).standard_normal(self.dimensions) for word in words]
        return np.sum([np.zeros(self.dimensions), *parts], axis=0)

    def _number(self, word: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}{word}".encode("utf-8", "replace")).digest()[:8])
