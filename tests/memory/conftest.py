import pytest
from made_runs import LABEL, Clock

from reflexion.memory import Memory, open_persistence


@pytest.fixture
async def memory(database_url):
    async with open_persistence(database_url) as persistence:
        yield Memory(persistence.store, LABEL, now=Clock())
