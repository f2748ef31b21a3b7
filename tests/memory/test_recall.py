"""Which lessons a run is given."""

import json

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.memory import InMemoryStore
from made_runs import TASK, episode, learned, using

from reflexion.memory import (
    LONGEST_LESSON,
    MOST_TOKENS,
    KnownLesson,
    Memory,
    Wanted,
    choose,
    make_lesson,
    most_alike,
    objection,
    open_persistence,
)
from reflexion.memory.choice import TRIED_FIRST, chance
from reflexion.memory.records import Experience, Use
from reflexion.models.usage import estimate_tokens


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
    assert (similarity, found.state) == (pytest.approx(1.0, abs=1e-3), "quarantined")


async def test_lessons_take_no_more_room_in_a_prompt_than_they_may(memory):
    long, short = learned("Look at every word. " * 25), learned("Start the sum at zero.")
    other = learned("Mind the sign of each number.")
    for number, rule in enumerate((short, other, long)):
        await memory.remember(episode(f"r{number}"), [rule])
    await using(memory, long[0]["id"], True, True)

    async def given(**wanted):
        return [each["id"] for each in (await memory.recall(TASK, Wanted("r", **wanted))).used]

    assert (await given(limit=5, tokens=600))[0] == long[0]["id"]
    assert long[0]["id"] not in await given(limit=5, tokens=100)
    assert len(await given(limit=5, tokens=100)) == 2
    assert len(await given(limit=5, tokens=10)) == 1
    assert await given(limit=5, tokens=1) == []


def test_a_lesson_of_the_longest_length_fits_whatever_its_script():
    for letter in "aä查😀":
        known = KnownLesson(make_lesson(TASK, letter * LONGEST_LESSON, 1.0), ())
        assert len(choose(Wanted("r"), [(1.0, known)]).used) == 1


async def test_of_5000_lessons_and_one_far_too_long_the_prompt_gets_what_fits(database_url):
    # Without embeddings, which would take 10 ms a lesson.
    async with open_persistence(database_url, embeddings=False) as persistence:
        memory = Memory(persistence.store)
        words = ("number", "list", "sum", "text", "line")
        lines = [
            json.dumps({"task": f"Task {n} about a {words[n % 5]}.", "text": f"Rule {n}: {'look at it closely ' * 30}"})
            for n in range(5_000)
        ]
        assert await memory.import_lines(lines) == 5_000
        for spaces in range(1, 11):
            again = learned(f"check  THE {' ' * spaces}empty list first", task="Task 7 about a sum.")
            await memory.remember(episode(f"r{spaces}", task="Task 7 about a sum."), [again])
        used = (await memory.recall("Task 7 about a sum.", Wanted("r", limit=10))).used
        kept = [known for _, known in await memory.search("Task 7 about a sum.") if known.seen == 10]
    assert used
    assert sum(estimate_tokens(each["text"]) for each in used) <= MOST_TOKENS
    assert len(kept) == 1
    assert objection("word " * 50_000, "") == "longer than 600 characters"


class Words(Embeddings):
    """Texts mean what their words are."""

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        vector = [0.0] * 64
        for word in text.lower().split():
            vector[sum(word.encode()) % 64] += 1.0
        return vector


LESSONS = [(task, "Join by the key.") for task in SQL] + [(REGEX, "Escape the dot.")]


@pytest.mark.parametrize("index", [None, {"dims": 64, "embed": Words(), "fields": ["task"]}], ids=["listed", "indexed"])
async def test_a_regex_question_finds_the_one_lesson_on_regex_or_none(index):
    memory = Memory(InMemoryStore(index=index))
    for number, (task, rule) in enumerate(LESSONS):
        await memory.remember(episode(f"r{number}", task=task), [learned(rule, task=task)])
    asked = "Write a regular expression that matches phone numbers."
    assert [each["text"] for each in (await memory.recall(asked, Wanted("r"))).used] == ["Escape the dot."]
    assert (await memory.recall("regex", Wanted("r"))).used == []


async def test_what_a_store_has_no_likeness_for_is_no_hit():
    known, unknown = make_lesson(TASK, "one", 1.0), make_lesson(TASK + "!", "two", 1.0)
    assert [each["text"] for _, each in most_alike(TASK, [(1.0, known), (None, unknown)])] == ["one"]
    assert len(most_alike(TASK, [(None, known), (None, unknown)])) == 2
