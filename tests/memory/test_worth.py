"""What uses of a lesson make of it, and what takes its place."""

import pytest
from made_runs import HARD, TASK, episode, learned, only, using

from reflexion.memory import Wanted


async def test_a_use_counts_against_what_was_to_be_expected_of_the_task(memory):
    easy = "Say hello."
    for n in range(3):
        await memory.remember(episode(f"easy{n}", task=easy, first=True))
    lesson, evidence = learned(task=easy)
    await memory.remember(episode("r", task=easy), [(lesson, evidence)])
    await using(memory, lesson["id"], True, task=easy)
    assert (await only(memory)).helped == 0
    await using(memory, lesson["id"], False, name="later", task=easy)
    kept = await only(memory)
    assert (kept.used, kept.helped, kept.hurt) == (2, 0, 1)
    assert kept.as_json()["uses"][0]["expected"] == pytest.approx(4 / 6)


async def test_a_first_attempt_without_a_verdict_says_nothing(memory):
    lesson, evidence = learned()
    await memory.remember(episode("r1"), [(lesson, evidence)])
    await memory.remember(episode("r2", first=None, lessons_used=[lesson["id"]]))
    assert (await only(memory)).used == 0


@pytest.mark.parametrize(
    ("confirmed", "task", "outcomes", "state"),
    [
        (False, TASK, [], "candidate"),
        (True, TASK, [], "active"),
        (False, "other", [True] * 3, "candidate"),
        (False, "other", [True] * 4, "active"),
        (False, "other", [True, False] * 20, "candidate"),
        (True, "other", [False] * 3, "active"),
        (True, "other", [False] * 4, "quarantined"),
        (True, "other", [True] * 2 + [False] * 4, "active"),
        (True, TASK, [False] * 7, "active"),
        (True, TASK, [False] * 8, "quarantined"),
        (True, HARD, [False] * 15, "active"),
        (True, HARD, [False] * 16, "retired"),
        (False, HARD, [True, True, False, False], "active"),
    ],
)
async def test_uses_promote_quarantine_and_retire_a_lesson(memory, confirmed, task, outcomes, state):
    lesson, evidence = learned(confirmed=confirmed)
    await memory.remember(episode("r1"), [(lesson, evidence)])
    for run in range(8):
        await memory.remember(episode(f"hard {run}", task=HARD))
    await using(memory, lesson["id"], *outcomes, task=task)
    assert (await only(memory)).state == state
    given = (await memory.recall(TASK, Wanted("r"))).used
    assert [each["state"] for each in given] == ([state] if state in {"candidate", "active"} else [])


async def test_what_passed_after_a_lesson_had_failed_takes_its_place(memory):
    old, new = learned("Sort the list first.", confirmed=True), learned("Start the sum at zero.", confirmed=True)
    await memory.remember(episode("r1"), [old])
    await memory.remember(episode("r2", lessons_used=[old[0]["id"]]), [new])
    known = {each.lesson["text"]: each for each in await memory.lessons()}
    assert known["Sort the list first."].state == "retired"
    assert known["Sort the list first."].superseded_by == new[0]["id"]
    assert [each["id"] for each in (await memory.recall(TASK, Wanted("r", limit=5))).used] == [new[0]["id"]]

    await memory.forget([new[0]["id"]])
    assert (await only(memory)).state == "active"


async def test_a_proven_lesson_is_not_replaced_after_one_failure(memory):
    old, new = learned("Sort the list first."), learned("Start the sum at zero.", confirmed=True)
    await memory.remember(episode("r1"), [old])
    await using(memory, old[0]["id"], *[True] * 5)
    await memory.remember(episode("r2", lessons_used=[old[0]["id"]]), [new])
    assert {each.state for each in await memory.lessons()} == {"active"}


async def test_an_unconfirmed_lesson_replaces_nothing(memory):
    old, new = learned("Sort the list first.", confirmed=True), learned("Start the sum at zero.")
    await memory.remember(episode("r1"), [old])
    await memory.remember(episode("r2", lessons_used=[old[0]["id"]]), [new])
    assert {each.state for each in await memory.lessons()} == {"active", "candidate"}


async def test_a_lesson_that_a_run_comes_to_again_is_back(memory):
    old, new = learned("Sort the list first.", confirmed=True), learned("Start the sum at zero.", confirmed=True)
    await memory.remember(episode("r1"), [old])
    await memory.remember(episode("r2", lessons_used=[old[0]["id"]]), [new])
    await memory.remember(episode("r3", lessons_used=[new[0]["id"]]), [old])
    assert {each.id: each.state for each in await memory.lessons()} == {
        old[0]["id"]: "active",
        new[0]["id"]: "retired",
    }


async def test_a_lesson_is_back_when_what_took_its_place_turned_out_worse(memory):
    old, new = learned("Sort the list first.", confirmed=True), learned("Start the sum at zero.", confirmed=True)
    await memory.remember(episode("r1"), [old])
    await memory.remember(episode("r2", lessons_used=[old[0]["id"]]), [new])
    assert [each["id"] for each in (await memory.recall(TASK, Wanted("r", limit=5))).used] == [new[0]["id"]]
    await using(memory, new[0]["id"], *[False] * 4, task="other")
    known = {each.id: (each.state, each.superseded_by) for each in await memory.lessons()}
    assert known == {old[0]["id"]: ("active", ""), new[0]["id"]: ("quarantined", "")}
    assert [each["id"] for each in (await memory.recall(TASK, Wanted("r", limit=5))).used] == [old[0]["id"]]


async def test_a_lesson_stays_replaced_as_long_as_anything_that_came_after_it_is_in_use(memory):
    first, second, third = (
        learned(text, confirmed=True)
        for text in ("Sort the list first.", "Start the sum at zero.", "Read every number.")
    )
    keys = [lesson["id"] for lesson, _ in (first, second, third)]
    await memory.remember(episode("r1"), [first])
    await memory.remember(episode("r2", lessons_used=keys[:1]), [second])
    await memory.remember(episode("r3", lessons_used=keys[1:2]), [third])

    async def states():
        known = {each.id: each.state for each in await memory.lessons()}
        return [known.get(key) for key in keys]

    assert await states() == ["retired", "retired", "active"]
    await using(memory, keys[2], *[False] * 4, task="other")
    assert await states() == ["retired", "active", "quarantined"]
    await memory.forget(keys[1:2])
    assert await states() == ["active", None, "quarantined"]
