"""First node: takes the input over into a fresh run, and recalls what earlier runs learned."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.store.base import BaseStore
from typing_extensions import TypedDict

from reflexion.evaluators import CriterionError, ExpectError, Rubric, TestsInvalid, as_tests, read_expectation
from reflexion.memory import (
    Keep,
    KnownLesson,
    Memory,
    Recalled,
    Reflection,
    Wanted,
    choose,
    make_lesson,
    most_alike,
)
from reflexion.nodes.settings import ConfigurationError, said
from reflexion.nodes.turn import Delta, Turn


class TaskSpec(TypedDict):
    """The task of a run as its state keeps it."""

    text: str
    tests: str
    expect: Any
    criteria: list[str]
    from_messages: bool
    """The task came as a chat message, so the answer goes back as one."""


class RecallReads(TypedDict, total=False):
    """What the node reads: the input, and the thread's own reflections."""

    task: str
    tests: str
    expect: Any
    criteria: list[str]
    messages: list[AnyMessage]
    reflections: list[Reflection]
    remaining_steps: int


FEWEST_STEPS = 4
"""recall, actor, evaluator, remember; a review comes on top.

LangGraph counts one more: its limit has to be greater than the steps taken."""


async def recall(state: RecallReads, turn: Turn, *, fresh: Callable[[], Mapping[str, Any]]) -> Delta:
    """Check the input, give every field of the run a fresh value, and recall lessons.

    Args:
        state: see `RecallReads`.
        turn: see `Turn`.
        fresh: makes the fresh values; without them an old run's score would end the new one.

    Raises:
        ConfigurationError: the input cannot be worked on; nothing has been paid for yet.
    """
    spec = read_task(state)
    steps = FEWEST_STEPS + (turn.settings.review in {"answer", "both"})
    if state.get("remaining_steps", steps) < steps:
        raise ConfigurationError(f"a single attempt needs a recursion limit of at least {steps + 1}")
    recalled = await _recalled(spec["text"], state.get("reflections", []), turn)
    for lesson in recalled.used:
        turn.emit("recalled", **lesson)
    for lesson in recalled.withheld:
        turn.emit("withheld", **lesson)
    return {
        **fresh(),
        "spec": spec,
        "settings": said(turn.settings, turn.kit.settings),
        "run_id": turn.step_id,
        "lessons_used": recalled.used,
        "lessons_withheld": recalled.withheld,
    }


async def _recalled(task: str, own: Sequence[Reflection], turn: Turn) -> Recalled:
    settings = turn.settings
    if not settings.memory or not settings.lessons:
        return Recalled()
    wanted = Wanted(
        turn.step_id,
        limit=settings.lessons,
        explore=settings.memory_explore,
        control=settings.memory_control,
        tokens=settings.memory_tokens,
    )
    if turn.store is not None:
        return await memory_of(turn, turn.store).recall(task, wanted)
    # Without a store a thread has its own reflections alone.
    lessons = [make_lesson(r["task"], r["text"], r["created_at"]) for r in own]
    alike = await asyncio.to_thread(most_alike, task, [(None, each) for each in lessons]) if lessons else []
    return choose(wanted, [(likeness, KnownLesson(lesson, ())) for likeness, lesson in alike])


def memory_of(turn: Turn, store: BaseStore) -> Memory:
    """The memory that a run shares with others."""
    keep = Keep(lessons=turn.settings.memory_lessons, days=turn.settings.memory_days)
    return Memory(store, turn.settings.namespace, keep=keep)


def read_task(state: RecallReads) -> TaskSpec:
    """The task of an input.

    Raises:
        ConfigurationError: there is none, or its tests or expectation cannot be used.
    """
    for name in ("task", "tests"):
        if not isinstance(state.get(name) or "", str):
            raise ConfigurationError(f"{name}: {state.get(name)!r} is no text")
    criteria = state.get("criteria") or ()
    if not isinstance(criteria, list | tuple) or not all(isinstance(c, str) and c.strip() for c in criteria):
        raise ConfigurationError(f"criteria: {criteria!r} is no list of sentences")
    text, from_messages = state.get("task") or "", False
    if not text.strip():
        text, from_messages = _last_human_message(state.get("messages", [])), True
    if not text.strip():
        raise ConfigurationError("no task: give a text as `task`, or a human message in `messages`")
    tests, expect = state.get("tests") or "", state.get("expect")
    if tests and expect not in (None, ""):
        raise ConfigurationError(
            "both tests and an expected answer are given: tests judge code, an expected answer judges text; "
            "give one of them"
        )
    try:
        if tests:
            tests = as_tests(tests)
        if expect not in (None, ""):
            read_expectation(expect)
        rubric = Rubric.read(criteria)
    except (TestsInvalid, ExpectError, CriterionError) as error:
        raise ConfigurationError(str(error)) from error
    return TaskSpec(
        text=text,
        tests=tests,
        expect=None if expect == "" else expect,
        criteria=[str(criterion) for criterion in rubric],
        from_messages=from_messages,
    )


def _last_human_message(messages: Sequence[AnyMessage]) -> str:
    return next((message.text for message in reversed(messages) if isinstance(message, HumanMessage)), "")
