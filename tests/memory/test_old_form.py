"""What a database from before holds is moved, and then read, used and forgotten like the rest."""

import asyncio

import pytest
from langgraph.store.base import PutOp
from made_runs import RULE, TASK, episode, learned, only

from reflexion.memory import Memory, Wanted, make_lesson, open_persistence
from reflexion.memory.places import Places

OLD_ID = make_lesson(TASK, RULE, 0)["id"].partition("-")[2]
COUNTED = {
    "id": OLD_ID, "task": TASK, "text": RULE, "evaluator": "critic", "thread_id": "t", "run_id": "old", "attempt": 1,
    "confirmed": True, "created_at": 1.0, "last_seen_at": 5.0, "times_seen": 3, "times_used": 4, "times_helped": 2,
    "credited_run": "c",
}  # fmt: skip


@pytest.fixture
async def store(database_url):
    async with open_persistence(database_url) as persistence:
        yield persistence.store


async def old(store, lessons=(), experiences=(), episodes=(), label="default"):
    """Put records where they lay before; ids of lessons had no task in them."""
    places = Places(label)
    for key, value in lessons:
        await store.aput(places.lessons, key, value, index=False)
    for value in experiences:
        await store.aput((*places.experiences, value["lesson_id"]), value["run_id"], value, index=False)
    for value in episodes:
        await store.aput(places.episodes, value["run_id"], value, index=False)


async def an_old_memory(store):
    """Of two runs: the second used the lesson of the first, failed, and came to another one."""
    bad, good = learned("Sort the list first.", confirmed=True), learned("Start the sum at zero.", confirmed=True)
    keys = [lesson["id"].partition("-")[2] for lesson, _ in (bad, good)]
    use = {"passed": False, "expected": 0.5, "outcome": "hurt", "replaced_by": keys[1]}
    common = {"evidence": None, "use": None}
    await old(
        store,
        [(key, dict(lesson) | {"id": key}) for key, (lesson, _) in zip(keys, (bad, good), strict=True)],
        [
            common | {"lesson_id": keys[0], "run_id": "r1", "at": 1.0, "evidence": bad[1]},
            common | {"lesson_id": keys[0], "run_id": "r2", "at": 2.0, "use": use},
            common | {"lesson_id": keys[1], "run_id": "r2", "at": 2.0, "evidence": good[1]},
        ],
        [
            episode("r1", at=1.0, lessons_learned=[keys[0]]),
            episode("r2", at=2.0, lessons_used=[keys[0]], lessons_learned=[keys[1]]),
        ],
    )
    return [lesson["id"] for lesson, _ in (bad, good)]


async def holds(memory, bad, good):
    known = {each.id: each for each in await memory.lessons()}
    assert {key: (each.state, each.used, each.seen) for key, each in known.items()} == {
        bad: ("retired", 1, 1),
        good: ("active", 0, 1),
    }
    assert known[bad].superseded_by == good
    assert [(each["run_id"], each["lessons_used"], each["lessons_learned"]) for each in await memory.episodes()] == [
        ("r2", [bad], [good]),
        ("r1", [], [bad]),
    ]


async def test_an_old_memory_is_moved_whole_when_it_is_met(store):
    bad, good = await an_old_memory(store)
    memory = Memory(store)
    assert [each["id"] for each in (await memory.recall(TASK, Wanted("r", limit=5))).used] == [good]
    await holds(memory, bad, good)
    assert {len(item.namespace) for item in await store.asearch(("reflexion",), limit=100)} - {3} == {4}
    assert await store.aget(Places("default").lessons, good.partition("-")[2]) is None
    await memory.remember(episode("r3", first=True, lessons_used=[good]))
    assert (await memory.effect()).total.given.of == 2
    assert (await memory.forget_run("r1")).lessons == 2


async def test_a_move_that_was_broken_off_goes_on(store, monkeypatch):
    bad, good = await an_old_memory(store)
    monkeypatch.setattr("reflexion.memory.shelf._BATCH", 2)
    batch, left = type(store).abatch, 0

    async def breaks_off(self, ops):
        nonlocal left
        ops = list(ops)
        left -= any(isinstance(op, PutOp) for op in ops)
        if left < 0:
            raise RuntimeError("killed")
        return await batch(self, ops)

    for moves in (1, 2, 3):
        left = moves
        monkeypatch.setattr(type(store), "abatch", breaks_off)
        with pytest.raises(RuntimeError):
            await Memory(store).lessons()
        monkeypatch.setattr(type(store), "abatch", batch)
    await holds(Memory(store), bad, good)


async def test_two_that_move_at_once_lose_nothing(durable_url):
    async with open_persistence(durable_url) as one, open_persistence(durable_url) as other:
        bad, good = await an_old_memory(one.store)
        await asyncio.gather(*(Memory(each.store).lessons() for each in (one, other, one, other)))
        await holds(Memory(one.store), bad, good)


async def test_lessons_with_counters_of_their_own_are_read_used_and_forgotten(store):
    memory = Memory(store)
    await old(store, [(OLD_ID, COUNTED)])
    await memory.remember(episode("new"), [learned()])
    (given,) = (await memory.recall(TASK, Wanted("r"))).used
    await memory.remember(episode("user", first=True, lessons_used=[given["id"]]))
    kept = await only(memory)
    assert (kept.seen, kept.used, kept.helped, kept.state) == (4, 5, 3, "active")
    await memory.forget_run("old")
    assert [each["run_id"] for each in (await only(memory)).evidence] == ["new"]
    await memory.forget_run("new")
    assert await memory.lessons() == []


async def test_what_cannot_be_read_is_left_out_and_said(store, caplog):
    memory = Memory(store)
    await old(store, {"a": {}, "b": {"times_used": 1}, "c": COUNTED | {"task": 7}, "d": {"id": "d"}}.items())
    await memory.remember(episode("r"), [learned()])
    assert len(await memory.lessons()) == 1
    assert caplog.text.count("is left out") >= 4
    await memory.forget_all()
    assert await store.asearch(("reflexion",)) == []
