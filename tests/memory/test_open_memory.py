"""Where the memory of a script is: where that of the runs is."""

import pytest
from made_runs import RULE, episode, learned

from reflexion.memory import Memory, NamespaceError, open_memory, open_persistence
from reflexion.memory.places import LONGEST_NAMESPACE


@pytest.mark.parametrize("dotenv", [False, True])
async def test_it_is_in_the_database_of_the_environment(tmp_path, monkeypatch, sqlite_url, dotenv):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REFLEXION_DATABASE_URL", raising=False)
    if dotenv:
        (tmp_path / ".env").write_text(f"REFLEXION_DATABASE_URL={sqlite_url}\n")
    else:
        monkeypatch.setenv("REFLEXION_DATABASE_URL", sqlite_url)
    async with open_persistence(sqlite_url) as persistence:
        await Memory(persistence.store, "shop/anna").remember(episode("r"), [learned()])
    async with open_memory(namespace="shop/anna") as memory:
        assert [each.lesson["text"] for each in await memory.lessons()] == [RULE]


@pytest.mark.parametrize("label", ["", " ", 7, None, "a" * (LONGEST_NAMESPACE + 1), "\ud800"])
async def test_what_can_be_no_namespace_is_refused_before_anything_is_opened(tmp_path, label):
    with pytest.raises(NamespaceError, match=r"^(the )?namespace "):
        async with open_memory(f"sqlite:///{tmp_path / 'no.sqlite'}", label):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_the_longest_namespace_of_the_widest_characters_fits_into_every_database(database_url):
    async with open_persistence(database_url) as persistence:
        memory = Memory(persistence.store, "😀" * LONGEST_NAMESPACE)
        await memory.remember(episode("r" * 36), [learned()])
        assert len(await memory.lessons()) == 1
