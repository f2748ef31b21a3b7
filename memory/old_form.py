"""What a memory held before its records lay by task: where that is, and where it belongs now."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from langgraph.store.base import Item, PutOp
from pydantic import TypeAdapter, ValidationError

from reflexion.memory.places import Places
from reflexion.memory.records import Earlier, Episode, Evidence, Experience, Lesson, make_lesson

T = TypeVar("T")

_LESSON, _EXPERIENCE, _EPISODE = TypeAdapter(Lesson), TypeAdapter(Experience), TypeAdapter(Episode)


def moves(places: Places, items: Sequence[Item]) -> list[tuple[PutOp, PutOp]]:
    """How each record that lies in an old place is moved: written anew, and deleted there.

    What is no record of ours stays where it is. Moves may be made twice, in any order, and by several processes.

    Args:
        places: of one memory.
        items: all that it holds.
    """
    ids = {item.key.partition("-")[2]: item.key for item in items if _of(item, places.lessons) and not _old(item)}
    puts: list[tuple[Item, PutOp]] = []
    for item in items:
        if _of(item, places.lessons) and _old(item) and (lesson := _read_lesson(item.value)):
            ids[item.key] = lesson["id"]
            puts.append((item, PutOp(places.of_lesson(lesson["id"]), lesson["id"], dict(lesson), index=["task"])))
    for item in items:
        key = ids.get(item.namespace[-1])
        if _of(item, places.experiences) and key and (experience := _read(_EXPERIENCE, item.value)):
            use = dict(_renamed_experience(experience, key, ids))
            puts.append((item, PutOp(places.of_uses(key), item.key, use, index=False)))
        elif _of(item, places.episodes) and _old(item) and (episode := _read(_EPISODE, item.value)):
            run = dict(_renamed_episode(episode, ids))
            puts.append((item, PutOp(places.of_runs(episode["task_key"]), item.key, run, index=False)))
    return [(put, PutOp(item.namespace, item.key, None)) for item, put in puts]


def _old(item: Item) -> bool:
    """Whether this lesson or episode lies where all of its namespace lay together."""
    return len(item.namespace) == 3


def _of(item: Item, place: tuple[str, ...]) -> bool:
    return item.namespace[: len(place)] == place


def _read(adapter: TypeAdapter[T], value: Any) -> T | None:
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


def _renamed_experience(experience: Experience, key: str, ids: Mapping[str, str]) -> Experience:
    renamed = experience | {"lesson_id": key}
    if use := experience["use"]:
        renamed["use"] = use | {"replaced_by": ids.get(use["replaced_by"], "")}
    return renamed


def _renamed_episode(episode: Episode, ids: Mapping[str, str]) -> Episode:
    return episode | {
        "lessons_used": [ids.get(key, key) for key in episode["lessons_used"]],
        "lessons_withheld": [ids.get(key, key) for key in episode["lessons_withheld"]],
        "lessons_learned": [ids.get(key, key) for key in episode["lessons_learned"]],
    }


def _read_lesson(value: Any) -> Lesson | None:
    try:
        lesson = _with_counters(value) if "times_used" in value else _read(_LESSON, value)
    except (KeyError, TypeError):
        return None
    return lesson and _read(_LESSON, lesson | {"id": make_lesson(lesson["task"], lesson["text"], 0)["id"]})


def _with_counters(old: dict[str, Any]) -> Lesson:
    """A lesson of the form in which it held its own counters."""
    lesson = make_lesson(old["task"], old["text"], old["created_at"])
    evidence = Evidence(
        thread_id=old["thread_id"],
        attempt=old["attempt"],
        text=old["text"],
        evaluator=old["evaluator"],
        verdict="",
        confirmed=old["confirmed"],
    )
    experience = Experience(
        lesson_id=lesson["id"], run_id=old["run_id"], at=old["last_seen_at"], evidence=evidence, use=None
    )
    earlier = Earlier(
        seen=old["times_seen"] - 1, used=old["times_used"], helped=old["times_helped"], experience=experience
    )
    return lesson | {"earlier": earlier}
