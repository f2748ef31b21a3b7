"""Any text is a namespace, and none sees another."""

import pytest
from made_runs import TASK, episode, learned, only

from reflexion.memory import Memory, Wanted, open_persistence
from reflexion.memory.places import Places


@pytest.mark.parametrize("label", ["a.b", "user.name@example.org", "😀", "a/b c", ".", "%2E", "langgraph", "oth"])
async def test_any_label_is_a_namespace_of_its_own(database_url, label):
    async with open_persistence(database_url) as persistence:
        one, other = Memory(persistence.store, label), Memory(persistence.store, "other")
        mine, its = learned("Mine is the first rule."), learned("The other one is not mine.", confirmed=True)
        await one.remember(episode("r1"), [mine])
        await other.remember(episode("r2", lessons_used=[mine[0]["id"]]), [its])
        kept = await only(one)
        assert (kept.lesson["text"], kept.used) == ("Mine is the first rule.", 0)
        assert [each["run_id"] for each in await one.episodes()] == ["r1"]
        await other.forget([mine[0]["id"]])
        assert (await other.forget_all()).lessons == 1
        assert [each["text"] for each in (await one.recall(TASK, Wanted("r"))).used] == ["Mine is the first rule."]


def test_labels_do_not_collide():
    labels = ["a.b", "a%2Eb", "a%2eb", "a", "ab", "a/b", "b", "A", "ä", "a b", "default", " a", "a_b"]
    assert len({Places(label).lessons for label in labels}) == len(labels)


async def test_names_that_begin_alike_or_differ_in_case_see_nothing_of_each_other(database_url):
    labels = ["a", "ab", "a/b", "A", "a.b"]
    async with open_persistence(database_url) as persistence:
        memories = {label: Memory(persistence.store, label) for label in labels}
        for label, memory in memories.items():
            await memory.remember(episode(label), [learned(f"This is the rule of {label} alone.")])
        for label, memory in memories.items():
            used = (await memory.recall(TASK, Wanted("r", limit=10))).used
            assert [each["text"] for each in used] == [f"This is the rule of {label} alone."]
            assert [each["run_id"] for each in await memory.episodes()] == [label]
            assert [known.lesson["text"] for _, known in await memory.search(TASK)] == [used[0]["text"]]
        await memories["a"].forget_all()
        assert [len(await memory.lessons()) for memory in memories.values()] == [0, 1, 1, 1, 1]
