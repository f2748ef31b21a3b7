"""An agent finds lessons by the embeddings that it is given, or that the environment names."""

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from reflexion.graphs import ConfigurationError, open_reflexion
from reflexion.models.embedding import MiniLM


async def embeddings_of(**arguments):
    async with open_reflexion(model="m", database_url="memory://", **arguments) as agent:
        return agent.persistence.store.embeddings


async def test_by_default_they_are_the_embedded_ones(monkeypatch):
    monkeypatch.delenv("REFLEXION_EMBEDDINGS", raising=False)
    assert isinstance(await embeddings_of(), MiniLM)


async def test_an_installation_may_have_none(monkeypatch):
    monkeypatch.setenv("REFLEXION_EMBEDDINGS", "none")
    assert await embeddings_of() is None
    assert isinstance(await embeddings_of(embeddings=True), MiniLM)


async def test_a_caller_may_bring_their_own_or_have_none():
    own = DeterministicFakeEmbedding(size=3)
    assert await embeddings_of(embeddings=own) is own
    assert await embeddings_of(embeddings=False) is None


def test_any_other_word_is_refused(monkeypatch):
    monkeypatch.setenv("REFLEXION_EMBEDDINGS", "openai")
    with pytest.raises(ConfigurationError, match="embeddings"):
        open_reflexion(model="m")


async def test_the_memory_database_finds_a_task_by_its_meaning():
    async with open_reflexion(model="m", database_url="memory://") as agent:
        store = agent.persistence.store
        for key, task in {"sort": "Arrange integers in ascending order.", "poem": "A poem about autumn."}.items():
            await store.aput(("lessons",), key, {"task": task, "text": "Mind the gap."}, index=["task"])
        await store.aput(("lessons",), "other", {"task": "Sort numbers."}, index=False)
        found = await store.asearch(("lessons",), query="Sort the numbers from small to large.", limit=2)
    assert [item.key for item in found] == ["sort", "poem"]
    assert found[0].score > found[1].score + 0.3
