"""The index of a store is made anew where it has one."""

import pytest
from langgraph.store.memory import InMemoryStore

from reflexion.memory import Memory


class Indexed(InMemoryStore):
    reindexed = 0

    async def areindex(self):
        self.reindexed += 1


@pytest.mark.parametrize(("kind", "can"), [(Indexed, True), (InMemoryStore, False)])
async def test_a_store_with_an_index_makes_it_anew_and_another_says_that_it_has_none(kind, can):
    store = kind()
    assert await Memory(store).reindex() is can
    assert getattr(store, "reindexed", 0) == can
