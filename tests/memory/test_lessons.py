"""Lessons in the store of every database."""

import pytest

from reflexion.memory import Lesson, Lessons, lesson_id, most_alike, open_persistence
from reflexion.memory.lessons import LEAST_LIKENESS, namespace_of
from reflexion.memory.likeness import rank


def lesson(task: str, text: str, **values) -> Lesson:
    made = Lesson(
        id=lesson_id(task, text), task=task, text=text, evaluator="critic", thread_id="t", run_id="r1", attempt=1,
        confirmed=False, created_at=1.0, last_seen_at=1.0, times_seen=1, times_used=0, times_helped=0, credited_run="",
    )  # fmt: skip
    return made | values


@pytest.fixture
async def memory(database_url):
    async with open_persistence(database_url) as persistence:
        yield Lessons(persistence.store, "user.name@example.org", now=lambda: 2.0)


async def test_the_same_lesson_in_other_spacing_and_case_is_counted_not_stored_twice(memory):
    await memory.add([lesson("Sum a list.", "Check the empty list first.")])
    for run in range(2, 11):
        await memory.add([lesson("sum  a list", "CHECK the  empty list first!", run_id=f"r{run}", confirmed=run == 3)])
    (kept,) = await memory.all()
    assert (kept["text"], kept["times_seen"], kept["last_seen_at"]) == ("Check the empty list first.", 10, 2.0)
    assert kept["confirmed"]


async def test_a_repeated_step_counts_nothing_twice(memory):
    made = lesson("Sum a list.", "Check the empty list first.")
    for _ in range(3):
        await memory.add([made])
        await memory.credit([made["id"], "gone"], run_id="r2", helped=True)
    (kept,) = await memory.all()
    assert (kept["times_seen"], kept["times_used"], kept["times_helped"]) == (1, 1, 1)


async def test_the_lessons_seen_last_are_kept(memory):
    await memory.add([lesson("t", f"rule number {n}", last_seen_at=float(n)) for n in (3, 1, 4, 2)])
    assert await memory.prune(keep=2) == 2
    assert [kept["text"] for kept in await memory.all()] == ["rule number 4", "rule number 3"]


async def test_more_lessons_than_a_page_are_all_found(memory, monkeypatch):
    monkeypatch.setattr("reflexion.memory.lessons._PAGE", 2)
    await memory.add([lesson("t", f"rule number {n}", last_seen_at=float(n)) for n in range(5)])
    assert [kept["text"] for kept in await memory.all()] == [f"rule number {n}" for n in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize("label", ["", "a.b", "user.name@example.org", "😀", "a/b c", ".", "%2E", "langgraph"])
async def test_any_label_is_a_namespace_of_its_own(database_url, label):
    async with open_persistence(database_url) as persistence:
        await Lessons(persistence.store, label).add([lesson("t", "one")])
        await Lessons(persistence.store, "other").add([lesson("t", "two")])
        assert [kept["text"] for kept in await Lessons(persistence.store, label).all()] == ["one"]


def test_labels_do_not_collide():
    labels = ["a.b", "a%2Eb", "a", "b", "A", "ä", "a b", "default"]
    assert len({namespace_of(label) for label in labels}) == len(labels)


SQL = ["Write a SQL query that joins orders and customers.", "Write a SQL query that counts rows per day.",
       "Write a SQL query that finds duplicate rows."]  # fmt: skip
REGEX = "Write a regular expression that matches e-mail addresses."


def test_the_lesson_of_the_likest_task_comes_first_and_unrelated_ones_not_at_all():
    lessons = [lesson(task, f"rule {n}") for n, task in enumerate([*SQL, REGEX])]
    asked = "Give a regular expression matching every e-mail address."
    assert [found["text"] for found in most_alike(asked, lessons, 4)] == ["rule 3"]
    assert most_alike("Translate the poem into French.", lessons, 4) == []
    assert most_alike("anything", [], 4) == []


def test_of_equally_like_ones_the_helpful_then_the_confirmed_then_the_newest_comes_first():
    lessons = [
        lesson("t", "harmful", times_used=4, created_at=9.0),
        lesson("t", "old", created_at=1.0),
        lesson("t", "new", created_at=2.0),
        lesson("t", "confirmed", confirmed=True),
        lesson("t", "helpful", times_used=4, times_helped=4),
    ]
    order = ["helpful", "confirmed", "new", "old", "harmful"]
    assert [found["text"] for found in most_alike("t", lessons, 5)] == order
    assert [found["text"] for found in most_alike("t", lessons, 1)] == ["helpful"]


PRIME = 'def is_prime(n: int) -> bool:\n    """Return True if n is a prime number, False otherwise."""'
SORT = 'def sort_words(text: str) -> str:\n    """Sort the words of a text by their length."""'
FLATTEN = 'def flatten(nested: list) -> list:\n    """Flatten a nested list of any depth."""'


@pytest.mark.parametrize(
    ("asked", "known", "alike"),
    [
        (PRIME, [PRIME], True),
        (PRIME.replace("is_prime", "check"), [PRIME, SORT, FLATTEN], True),
        (
            "Write a Python function. Return True if n is a prime number, False otherwise.",
            [PRIME, SORT, FLATTEN],
            True,
        ),
        (PRIME, [SORT], False),
        (PRIME, [SORT, FLATTEN], False),
        ("Schreibe ein Gedicht über den Herbst.", [PRIME, SORT], False),
    ],
)
def test_other_words_for_a_task_are_like_it_and_another_task_is_not(asked, known, alike):
    likeness = rank(asked, known)
    assert (max(likeness) >= LEAST_LIKENESS) is alike
    assert likeness[0] == max(likeness) or not alike


def test_likeness_of_odd_texts():
    assert rank("", ["", "a"])[0] in {0.0, 1.0}
    assert rank("x" * 1_000_000, ["x" * 1_000_000]) == [pytest.approx(1.0)]
