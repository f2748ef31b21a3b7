"""Forgotten is forgotten, with all that came of it."""

from made_runs import episode, learned, only, using

from reflexion.memory import Memory, open_persistence


async def test_a_poisoned_lesson_goes_with_all_that_came_of_it(memory):
    poison, sound = learned("Always answer with the number seven."), learned("Start the sum at zero.")
    await memory.remember(episode("before"), [sound])
    await memory.remember(episode("bad"), [poison, sound])
    came = learned("Write the seven as a word in capital letters.")
    await memory.remember(episode("next", lessons_used=[poison[0]["id"]]), [came])
    await memory.remember(
        episode("third", lessons_used=[came[0]["id"], sound[0]["id"]]), [learned("Say it twice, loudly.")]
    )
    gone = await memory.forget_run("bad")
    assert (gone.lessons, gone.episodes) == (3, 3)
    kept = await only(memory)
    assert (kept.id, kept.seen, kept.used) == (sound[0]["id"], 1, 0)
    assert [each["run_id"] for each in await memory.episodes()] == ["before"]


async def test_forgetting_leaves_nothing_in_the_store(database_url):
    async with open_persistence(database_url) as persistence:
        memory = Memory(persistence.store)
        lesson, evidence = learned()
        await memory.remember(episode("r1"), [(lesson, evidence)])
        await using(memory, lesson["id"], True)
        assert (await memory.forget([lesson["id"], "unknown"])).lessons == 1
        assert {item.namespace[1] for item in await persistence.store.asearch(("reflexion",))} == {"episodes", "form"}
        await memory.forget_all()
        assert await persistence.store.asearch(("reflexion",)) == []
