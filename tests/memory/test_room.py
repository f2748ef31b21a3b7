"""A memory grows up to what it keeps, and then the least worth goes."""

from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from made_runs import LABEL, TASK, Clock, episode, learned, only, using

from reflexion.memory import Keep, Memory, Wanted, open_persistence
from reflexion.memory.choice import CONSIDERED
from reflexion.memory.room import DAY_S, due


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


async def test_a_namespace_that_has_grown_too_large_makes_room_by_itself(database_url):
    async with open_persistence(database_url) as persistence:
        memory = Memory(persistence.store, LABEL, keep=Keep(lessons=4), now=Clock())
        for number in range(7):
            await memory.remember(episode(f"r{number}"), [learned("Rule.", task=f"Task number {number}.")])
        kept = [each.lesson["task"] for each in await memory.lessons()]
    assert kept == [f"Task number {number}." for number in (6, 5, 4, 3)]


async def test_a_task_keeps_its_last_lessons_and_not_the_retired_ones(memory, monkeypatch):
    monkeypatch.setattr("reflexion.memory.memory.MOST_OF_TASK", 10)
    words = ["apple", "bread", "chair", "dream", "eagle", "flame", "grape", "house", "ivory", "juice", "knife"]
    rules = [learned(f"Look at the {word} of each {word}.", confirmed=True) for word in words]
    bad = rules[7][0]["id"]
    for number, rule in enumerate(rules[:9]):
        used = [bad] if number == 8 else []
        await memory.remember(episode(f"r{number}", lessons_used=used), [rule])
    for number, rule in enumerate(rules[9:]):
        await memory.remember(episode(f"later {number}"), [rule])
    texts = {lesson["text"] for lesson, _ in rules}
    assert texts - {each.lesson["text"] for each in await memory.lessons()} == {
        rules[0][0]["text"],
        rules[7][0]["text"],
    }


def test_the_more_a_memory_keeps_the_rarer_a_run_looks_through_it():
    runs = [f"run {number}" for number in range(4_000)]
    assert all(due(run, "lessons", 10) for run in runs)
    assert 25 <= sum(due(run, "lessons", 1_000) for run in runs) <= 60
    assert sum(due(run, "lessons", 100_000) for run in runs) <= 5


async def test_lessons_that_no_run_has_seen_for_long_are_not_recalled_and_go(database_url):
    clock = Clock()
    async with open_persistence(database_url) as persistence:
        memory = Memory(persistence.store, LABEL, keep=Keep(days=10), now=clock)
        used, unused = learned(), learned("Start the sum at zero.")
        await memory.remember(episode("r1"), [used, unused])
        clock.now += 6 * DAY_S
        await using(memory, used[0]["id"], True)
        clock.now += 6 * DAY_S
        given = (await memory.recall(TASK, Wanted("r", limit=5))).used
        assert [each["id"] for each in given] == [used[0]["id"]]
        assert (await memory.prune()).lessons == 1
        assert [each.id for each in await memory.lessons()] == [used[0]["id"]]
        clock.now += 11 * DAY_S
        assert (await memory.recall(TASK, Wanted("r"))).used == []
        await memory.remember(episode("r2"), [used])
        assert len((await memory.recall(TASK, Wanted("r"))).used) == 1


class Counting(InMemoryStore):
    """Counts the items that it hands out and takes in."""

    items = 0

    async def abatch(self, ops):
        ops = list(ops)
        results = await super().abatch(ops)
        self.items += sum(isinstance(op, PutOp) for op in ops)
        self.items += sum(len(result) if isinstance(result, list) else result is not None for result in results)
        return results


async def test_what_a_run_reads_and_writes_does_not_grow_with_the_namespace():
    store = Counting(index={"dims": 2, "embed": Flat(), "fields": ["task"]})
    memory = Memory(store, now=Clock())
    lesson, evidence = learned()
    await memory.remember(episode("r1"), [(lesson, evidence)])

    async def cost(run):
        before = store.items
        await memory.recall(TASK, Wanted(run))
        await memory.remember(episode(run, lessons_used=[lesson["id"]]), [learned(f"Begin at {run}.")])
        return store.items - before

    async def others(count, what):
        for number in range(count):
            task = what.format(number)
            await memory.remember(episode(task, task=task), [learned("Rule.", task=task)])

    await others(CONSIDERED, "Write the letter {} in red.")
    small = await cost("7")
    await others(300, "Translate line {} of the poem.")
    assert await cost("8") <= small + 10


class Flat(Embeddings):
    """All texts mean the same."""

    def embed_documents(self, texts):
        return [[1.0, 0.0] for _ in texts]

    def embed_query(self, text):
        return [1.0, 0.0]
