"""Lessons that say the same are kept once, and nothing is counted twice."""

import asyncio

from made_runs import RULE, episode, learned, only, using

from reflexion.memory import Memory, open_persistence


async def test_the_same_lesson_in_other_spacing_and_case_is_evidence_for_the_first(memory):
    await memory.remember(episode("r1"), [learned()])
    for run in range(2, 11):
        again = learned("CHECK the  empty list first!", task="sum  a list", confirmed=run == 3)
        (kept,) = await memory.remember(episode(f"r{run}"), [again])
        assert kept["text"] == RULE
    kept = await only(memory)
    assert (kept.lesson["text"], kept.seen, kept.confirmed, kept.state) == (RULE, 10, True, "active")
    assert {each["run_id"] for each in kept.evidence} == {f"r{run}" for run in range(1, 11)}


async def test_a_repeated_step_counts_nothing_twice(memory):
    lesson, evidence = learned()
    for _ in range(3):
        await memory.remember(episode("r1"), [(lesson, evidence)])
        await memory.remember(episode("r2", first=True, lessons_used=[lesson["id"], "gone"]))
    kept = await only(memory)
    assert (kept.seen, kept.used, kept.helped) == (1, 1, 1)
    assert [each["run_id"] for each in await memory.episodes()] == ["r2", "r1"]


async def test_runs_at_the_same_time_lose_no_count(database_url):
    lesson, evidence = learned()
    async with open_persistence(database_url) as persistence:
        await Memory(persistence.store).remember(episode("r"), [(lesson, evidence)])
        runs = [episode(f"r{n}", first=n % 2 == 0, lessons_used=[lesson["id"]]) for n in range(20)]
        await asyncio.gather(*(Memory(persistence.store).remember(run) for run in runs))
        kept = await only(Memory(persistence.store))
    assert (kept.used, kept.helped, kept.hurt) == (20, 10, 0)


async def test_texts_that_a_number_or_a_negation_tells_apart_are_two_lessons(memory):
    rule = "Return the last {} items of the list when the count is given as a keyword argument."
    for text in (rule.format(2), rule.format(3), rule.format(2).replace("is given", "is not given")):
        await memory.remember(episode(text), [learned(text)])
    assert len(await memory.lessons()) == 3


async def test_a_quarantined_lesson_does_not_come_back_in_other_words(memory):
    rule = "Check whether the list is empty before you take {} first item, and return zero then, as the sum of nothing."
    lesson, evidence = learned(rule.format("its"), confirmed=True)
    await memory.remember(episode("r1"), [(lesson, evidence)])
    await using(memory, lesson["id"], *[False] * 4, task="other")
    await memory.remember(episode("r2"), [learned(rule.format("the"), confirmed=True)])
    assert (await only(memory)).state == "quarantined"
