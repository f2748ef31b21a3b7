"""What runs leave in the store of every database, and what later runs are given of it."""

import asyncio

import pytest

from reflexion.memory import (
    Episode,
    Evidence,
    Memory,
    Wanted,
    choose,
    make_lesson,
    most_alike,
    open_persistence,
    task_key,
)
from reflexion.memory.choice import LEAST_LIKENESS, TRIED_FIRST, chance
from reflexion.memory.likeness import rank
from reflexion.memory.records import Experience, Use
from reflexion.memory.shelf import namespace_of

TASK, RULE = "Sum a list.", "Check the empty list first."
HARD = "Sum what has no sum."
LABEL = "user.name@example.org"


def episode(run: str, *, task: str = TASK, first: bool | None = False, **values) -> Episode:
    made = Episode(
        run_id=run, thread_id="t", task=task, task_key=task_key(task), scores=[1.0 if first else 0.0],
        first_passed=first, passed=bool(first), stop_reason="passed" if first else "max_attempts", cost_usd=None,
        lessons_used=[], lessons_withheld=[], lessons_learned=[], at=0.0,
    )  # fmt: skip
    return made | values


def learned(text: str = RULE, *, task: str = TASK, confirmed: bool = False, created_at: float = 1.0):
    evidence = Evidence(thread_id="t", attempt=1, text=text, evaluator="e", verdict="wrong", confirmed=confirmed)
    return make_lesson(task, text, created_at), evidence


class Clock:
    """Every look at it is a second later."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
async def memory(database_url):
    async with open_persistence(database_url) as persistence:
        yield Memory(persistence.store, LABEL, now=Clock())


async def using(memory: Memory, key: str, *outcomes: bool, name: str = "used", task: str = TASK) -> None:
    for number, passed in enumerate(outcomes):
        await memory.remember(episode(f"{name}-{number}", first=passed, lessons_used=[key], task=task))


async def only(memory: Memory):
    (kept,) = await memory.lessons()
    return kept


async def test_the_same_lesson_in_other_spacing_and_case_is_evidence_for_the_first(memory):
    await memory.remember(episode("r1"), [learned()])
    for run in range(2, 11):
        again = learned("CHECK the  empty list first!", task="sum  a list", confirmed=run == 3)
        (kept,) = await memory.remember(episode(f"r{run}"), [again])
        assert kept["text"] == RULE
    kept = await only(memory)
    assert (kept.lesson["text"], kept.seen, kept.confirmed, kept.state) == (RULE, 10, True, "active")
    assert {each["run_id"] for each, _ in kept.evidence} == {f"r{run}" for run in range(1, 11)}


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


async def test_a_quarantined_lesson_does_not_come_back_in_other_words(memory):
    rule = "Check whether the list is empty before you take {} first item, and return zero then, as the sum of nothing."
    lesson, evidence = learned(rule.format("its"), confirmed=True)
    await memory.remember(episode("r1"), [(lesson, evidence)])
    await using(memory, lesson["id"], *[False] * 4, task="other")
    await memory.remember(episode("r2"), [learned(rule.format("the"), confirmed=True)])
    assert (await only(memory)).state == "quarantined"


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


async def test_texts_that_a_number_or_a_negation_tells_apart_are_two_lessons(memory):
    rule = "Return the last {} items of the list when the count is given as a keyword argument."
    for text in (rule.format(2), rule.format(3), rule.format(2).replace("is given", "is not given")):
        await memory.remember(episode(text), [learned(text)])
    assert len(await memory.lessons()) == 3


async def test_what_runs_leave_is_capped(memory, monkeypatch):
    monkeypatch.setattr("reflexion.memory.memory.MOST_EXPERIENCES", 3)
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
    assert (await memory.prune(lessons=2)).lessons == 2
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


@pytest.mark.parametrize("label", ["", "a.b", "user.name@example.org", "😀", "a/b c", ".", "%2E", "langgraph", "oth"])
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
    labels = ["a.b", "a%2Eb", "a", "b", "A", "ä", "a b", "default"]
    assert len({namespace_of(label) for label in labels}) == len(labels)


OLD = {
    "id": make_lesson(TASK, RULE, 0)["id"], "task": TASK, "text": RULE, "evaluator": "critic", "thread_id": "t",
    "run_id": "old", "attempt": 1, "confirmed": True, "created_at": 1.0, "last_seen_at": 5.0, "times_seen": 3,
    "times_used": 4, "times_helped": 2, "credited_run": "c",
}  # fmt: skip


async def test_lessons_of_the_form_before_are_read_used_and_forgotten(database_url):
    async with open_persistence(database_url) as persistence:
        memory = Memory(persistence.store)
        await persistence.store.aput(namespace_of("default"), OLD["id"], OLD, index=False)
        await memory.remember(episode("new"), [learned()])
        await memory.remember(episode("user", first=True, lessons_used=[OLD["id"]]))
        kept = await only(memory)
        assert (kept.seen, kept.used, kept.helped, kept.state) == (4, 5, 3, "active")
        assert (await memory.recall(TASK, Wanted("r"))).used[0]["id"] == OLD["id"]
        await memory.forget_run("old")
        assert [each["run_id"] for each, _ in (await only(memory)).evidence] == ["new"]
        await memory.forget_run("new")
        assert await memory.lessons() == []


async def test_what_cannot_be_read_is_left_out_and_said(database_url, caplog):
    async with open_persistence(database_url) as persistence:
        memory = Memory(persistence.store)
        for key, value in {"a": {}, "b": {"times_used": 1}, "c": OLD | {"task": 7}, "d": {"id": "d"}}.items():
            await persistence.store.aput(namespace_of("default"), key, value, index=False)
        await memory.remember(episode("r"), [learned()])
        assert len(await memory.lessons()) == 1
        assert caplog.text.count("is left out") >= 4
        await memory.forget_all()
        assert await persistence.store.asearch(("reflexion",)) == []


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
        assert {item.namespace[1] for item in await persistence.store.asearch(("reflexion",))} == {"episodes"}
        await memory.forget_all()
        assert await persistence.store.asearch(("reflexion",)) == []


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
    known = {near["id"]: uses}
    assert choose(Wanted("r", explore=1), [(1.0, near), (0.6, far)], known).used[0]["id"] == near["id"]
    assert choose(Wanted("r", explore=1), [(1.0, near), (0.95, far)], known).used[0]["id"] == far["id"]


SQL = ["Write a SQL query that joins orders and customers.", "Write a SQL query that counts rows per day.",
       "Write a SQL query that finds duplicate rows."]  # fmt: skip
REGEX = "Write a regular expression that matches e-mail addresses."


def test_the_lesson_of_the_likest_task_comes_first_and_unrelated_ones_not_at_all():
    lessons = [make_lesson(task, f"rule {n}", 1.0) for n, task in enumerate([*SQL, REGEX])]
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
