"""Forgotten is forgotten, with all that came of it."""

from pathlib import Path

from hashed import Hashed
from made_runs import episode, learned, only, using

from reflexion.memory import Change, Memory, open_persistence


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


async def test_a_lesson_made_of_others_does_not_keep_the_words_of_a_run_that_was_forgotten(memory):
    rule = "Start at zero and check that the list is not empty."
    await memory.remember(episode("bad"), [learned("Start the sum at zero.")])
    await memory.remember(episode("sound"), [learned("Start the sum at zero!"), learned("Check the empty list.")])
    await memory.decide(Change("MERGE", tuple(await memory.lessons()), rule, "one rule"), "tidied.1")
    await memory.forget_run("bad")
    (merged,) = [each for each in await memory.lessons() if each.lesson["text"] == rule]
    assert {each["run_id"] for each in merged.evidence} == {"sound"}
    assert "bad" not in "".join(await memory.export_lines())


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("*.sqlite*") if file.is_file()).lower()


async def test_what_was_forgotten_stands_nowhere_in_the_sqlite_file(sqlite_url):
    folder = Path(sqlite_url.removeprefix("sqlite:///")).parent
    async with open_persistence(sqlite_url, embeddings=Hashed()) as database, open_persistence(sqlite_url):
        memory = Memory(database.store)
        for number in range(60):
            name = "zanzibar" if number % 3 else "quito"
            rule, task = f"Check number {number} of {name}{number} first.", f"Count {number} roofs of {name}{number}."
            await memory.remember(episode(f"{name}-{number}", task=task), [learned(rule, task=task)])
        assert b"zanzibar" in bytes_of(folder)
        for each in [each for each in await memory.lessons() if "zanzibar" in each.lesson["text"]]:
            await memory.forget_run(each.evidence[0]["run_id"])
        assert b"zanzibar" not in bytes_of(folder)
        assert len(await memory.search("Count 3 roofs of quito3.")) > 0
