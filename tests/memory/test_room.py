"""A memory grows up to what it keeps, and then the least worth goes."""

from made_runs import episode, learned, only, using

from reflexion.memory import Keep


async def test_what_runs_leave_is_capped(memory, monkeypatch):
    monkeypatch.setattr("reflexion.memory.room.MOST_EXPERIENCES", 3)
    lesson, evidence = learned()
    for run in range(5):
        await memory.remember(episode(f"r{run}"), [(lesson, evidence)])
    await using(memory, lesson["id"], *[True] * 5)
    kept = await only(memory)
    assert (kept.seen, kept.used) == (3, 3)
    assert [each["run_id"] for each in kept.experiences] == ["used-4", "used-3", "used-2", "r4", "r3", "r2"]


async def test_retired_lessons_and_those_seen_longest_ago_go_first(memory):
    bad = learned("Sort the list first.", confirmed=True)
    await memory.remember(episode("r1"), [learned("Rule number one of all.")])
    await memory.remember(episode("r2"), [learned("The second rule is longer.")])
    await memory.remember(episode("r3"), [bad])
    await memory.remember(episode("r4", lessons_used=[bad[0]["id"]]), [learned("Begin at zero.", confirmed=True)])
    assert (await memory.prune(Keep(lessons=2))).lessons == 2
    assert [each.lesson["text"] for each in await memory.lessons()] == ["Begin at zero.", "The second rule is longer."]


async def test_old_and_too_many_episodes_go(memory):
    for run in range(6):
        await memory.remember(episode(f"r{run}"))
    assert (await memory.prune(episodes=4)).episodes == 2
    assert [each["run_id"] for each in await memory.episodes()] == ["r5", "r4", "r3", "r2"]
    assert (await memory.prune(older_than_s=0)).episodes == 4


async def test_more_lessons_than_a_page_are_all_found(memory, monkeypatch):
    monkeypatch.setattr("reflexion.memory.shelf._PAGE", 2)
    texts = ["Begin at zero.", "Sort it first.", "Use a heap.", "Read the last line.", "Mind the sign."]
    for text in texts:
        await memory.remember(episode(text), [learned(text)])
    assert [each.lesson["text"] for each in await memory.lessons()] == texts[::-1]
