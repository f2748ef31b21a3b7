"""What memory does, told from runs with and without it."""

from made_runs import episode, learned


async def test_the_effect_is_told_from_runs_that_had_a_lesson_and_runs_of_which_it_was_withheld(memory):
    assert (await memory.effect()).total.verdict == "cannot be told: no run with a verdict used a lesson"
    lesson, evidence = learned()
    await memory.remember(episode("r1"), [(lesson, evidence)])
    key = lesson["id"]
    for n in range(20):
        await memory.remember(episode(f"w{n}", first=n < 18, lessons_used=[key]))
        await memory.remember(episode(f"o{n}", first=n < 4, lessons_withheld=[key]))
    effect = await memory.effect()
    assert effect.total == effect.by_lesson[key]
    assert (effect.total.given.count, effect.total.withheld.count, effect.without_lessons.of) == (18, 4, 1)
    assert effect.total.verdict.startswith("memory helps: +70% (")
    assert effect.as_json()["total"]["difference"]["low"] > 0
