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
