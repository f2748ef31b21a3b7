"""Which lessons a run is given."""

import pytest
from made_runs import TASK, episode, learned, using

from reflexion.memory import KnownLesson, Wanted, choose, make_lesson, most_alike
from reflexion.memory.choice import TRIED_FIRST, chance
from reflexion.memory.records import Experience, Use


async def test_chance_decides_by_the_run_whether_a_lesson_is_tried_or_withheld(memory):
    best, trial = learned("Check the empty list first.", confirmed=True), learned("Begin to sum at zero.")
    await memory.remember(episode("r1"), [best, trial])
    for number in range(TRIED_FIRST):
        first = await memory.recall(TASK, Wanted("any", explore=1, control=1))
        assert [each["id"] for each in first.used] == [best[0]["id"]]
        await using(memory, best[0]["id"], True, name=f"use {number}")

    async def given(run: str, **shares: float):
        found = await memory.recall(TASK, Wanted(run, **shares))
        assert found == await memory.recall(TASK, Wanted(run, **shares))
        return found

    runs = [f"run {n}" for n in range(400)]
    explored = [(await given(run, explore=0.25)).used[0] for run in runs[:100]]
    assert {(each["id"], each["explored"]) for each in explored} == {(best[0]["id"], False), (trial[0]["id"], True)}
    control = await given(next(run for run in runs if chance(run, "control") < 0.1), control=0.1)
    assert (control.used, [each["id"] for each in control.withheld]) == ([], [best[0]["id"]])
    assert 60 <= sum(chance(run, "explore") < 0.25 for run in runs) <= 140
    assert (await given("any")).used[0]["id"] == best[0]["id"]


async def test_a_candidate_of_a_less_similar_task_is_not_tried():
    near, far = make_lesson(TASK, "one", 1.0), make_lesson("Sum.", "two", 1.0)
    use = Use(passed=True, expected=0.5, outcome="helped", replaced_by="")
    uses = [
        Experience(lesson_id=near["id"], run_id=f"r{n}", at=1.0, evidence=None, use=use) for n in range(TRIED_FIRST)
    ]
    tried, other = KnownLesson(near, uses), KnownLesson(far, ())
    assert choose(Wanted("r", explore=1), [(1.0, tried), (0.6, other)]).used[0]["id"] == near["id"]
    assert choose(Wanted("r", explore=1), [(1.0, tried), (0.95, other)]).used[0]["id"] == far["id"]


SQL = ["Write a SQL query that joins orders and customers.", "Write a SQL query that counts rows per day.",
       "Write a SQL query that finds duplicate rows."]  # fmt: skip
REGEX = "Write a regular expression that matches e-mail addresses."


def test_the_lesson_of_the_likest_task_comes_first_and_unrelated_ones_not_at_all():
    lessons = [(None, make_lesson(task, f"rule {n}", 1.0)) for n, task in enumerate([*SQL, REGEX])]
    asked = "Give a regular expression matching every e-mail address."
    assert [found["text"] for _, found in most_alike(asked, lessons, 4)] == ["rule 3"]
    assert most_alike("Translate the poem into French.", lessons, 4) == []
    assert most_alike("anything", [], 4) == []


async def test_of_equally_like_ones_the_helpful_then_the_confirmed_then_the_newest_comes_first(memory):
    texts = {"harmful": "Sort the list.", "old": "Use a loop.", "new": "Begin at zero.", "confirmed": "Mind the sign.",
             "helpful": "Read every line."}  # fmt: skip
    for number, (name, text) in enumerate(texts.items()):
        created = {"old": 2.0, "new": 3.0}.get(name, 9.0 + number)
        await memory.remember(episode(name), [learned(text, confirmed=name == "confirmed", created_at=created)])
    ids = {name: make_lesson(TASK, text, 0)["id"] for name, text in texts.items()}
    await using(memory, ids["harmful"], False, False, name="harmful", task="other")
    await using(memory, ids["helpful"], True, True, name="helpful")
    order = [ids[name] for name in ("helpful", "confirmed", "new", "old", "harmful")]
    assert [found["id"] for found in (await memory.recall(TASK, Wanted("r", limit=5))).used] == order
    assert [found["id"] for found in (await memory.recall(TASK, Wanted("r"))).used] == order[:1]


async def test_a_search_finds_lessons_of_any_state(memory):
    lesson, evidence = learned(confirmed=True)
    await memory.remember(episode("r1"), [(lesson, evidence)])
    await using(memory, lesson["id"], *[False] * 4, task="other")
    ((similarity, found),) = await memory.search(TASK)
    assert (similarity, found.state) == (pytest.approx(1.0), "quarantined")
