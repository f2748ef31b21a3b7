"""Threads on the server: state, history, time travel, chat, cancelling, and a second run on a busy thread."""

import pytest
from dev_server import LESSON, PLAN, Cast
from langgraph_sdk.errors import ConflictError, NotFoundError

TASK = {"task": "Sum a list."}
STEPS = ["recall", "actor", "evaluator", "reflector", "planner", "actor", "evaluator", "remember"]


async def finished(client, cast) -> str:
    """A thread on which one run has passed at its second attempt."""
    thread = (await client.threads.create())["thread_id"]
    result = await client.runs.wait(thread, "reflexion", input=TASK, context=cast.context)
    assert result["passed"]
    return thread


async def before(client, thread: str, step: str) -> dict:
    """The latest checkpoint from which a step would be done next."""
    history = await client.threads.get_history(thread, limit=50)
    return next(state for state in history if state["next"] == [step])


async def test_the_history_has_a_readable_state_for_every_step(client, cast):
    thread = await finished(client, cast)
    history = await client.threads.get_history(thread, limit=50)
    assert [step for state in reversed(history) for step in state["next"]] == ["__start__", *STEPS]
    last = history[0]["values"]
    assert last["spec"]["text"] == TASK["task"]
    assert last["attempts"][0]["reflection"] == LESSON
    assert [call["role"] for call in last["calls"]] == [step for step in STEPS if step not in {"recall", "remember"}]
    assert last["messages"] == []
    assert not {"task", "tests", "expect", "criteria", "remaining_steps"} & set(last)


@pytest.mark.parametrize(
    ("after", "then", "change"),
    [
        ("planner", "actor", {"plan": "1. Count with a loop."}),
        ("reflector", "planner", {"attempts": [{"number": 1, "reflection": "Count with a loop."}]}),
    ],
)
async def test_a_plan_or_reflection_that_is_edited_in_the_past_is_followed(client, cast, after, then, change):
    thread = await finished(client, cast)
    original = await client.threads.get_state(thread)
    asked = len(cast.requests("actor"))
    old = await before(client, thread, then)
    fork = await client.threads.update_state(thread, change, checkpoint=old["checkpoint"], as_node=after)
    result = await client.runs.wait(
        thread, "reflexion", input=None, checkpoint=fork["checkpoint"], context=cast.context
    )
    assert result["passed"]
    (request,) = cast.requests("actor")[asked:]
    assert "Count with a loop." in request
    assert (PLAN in request) == (after == "reflector")
    assert LESSON in request or after == "reflector"
    kept = await client.threads.get_state(thread, checkpoint=original["checkpoint"])
    assert kept["values"] == original["values"]


async def test_a_thread_goes_on_with_a_new_task_and_keeps_its_reflections(client, cast):
    thread = await finished(client, cast)
    result = await client.runs.wait(thread, "reflexion", input={"task": "Sum a list of floats."}, context=cast.context)
    assert len(result["attempts"]) == 1
    assert [lesson["text"] for lesson in result["lessons_used"]] == [LESSON]
    state = await client.threads.get_state(thread)
    assert len(state["values"]["reflections"]) == 1


async def test_a_chat_is_answered_as_a_chat(client, cast):
    thread = (await client.threads.create())["thread_id"]
    for number, question in enumerate(("Sum a list.", "And a tuple?"), start=1):
        result = await client.runs.wait(
            thread, "reflexion", input={"messages": [{"role": "user", "content": question}]}, context=cast.context
        )
        said = [(message["type"], message["content"]) for message in result["messages"]]
        assert len(said) == 2 * number
        assert said[-2:] == [("human", question), ("ai", result["answer"])]
        assert question in cast.requests("actor")[-1]


async def test_a_run_that_is_joined_late_is_seen_from_its_beginning(client, cast):
    thread = (await client.threads.create())["thread_id"]
    cast.endpoint.hold(cast.model("planner"))
    run = await client.runs.create(
        thread, "reflexion", input=TASK, context=cast.context, stream_mode=["custom"], stream_resumable=True
    )
    await cast.endpoint.wait_for_async(cast.model("planner"), timeout_s=60)
    cast.endpoint.release(cast.model("planner"))
    parts = client.runs.join_stream(thread, run["run_id"], stream_mode="custom", last_event_id="-1")
    events = [part.data["event"] async for part in parts if part.event == "custom"]
    assert (events[0], events[-1]) == ("attempt_started", "stopped")
    assert (await client.runs.join(thread, run["run_id"]))["passed"]


async def held(client, cast: Cast, role: str, **options) -> tuple[str, str]:
    """A thread and its run, which waits for a role's model."""
    thread = (await client.threads.create())["thread_id"]
    cast.endpoint.hold(cast.model(role))
    run = await client.runs.create(thread, "reflexion", input=TASK, context=cast.context, **options)
    await cast.endpoint.wait_for_async(cast.model(role), timeout_s=60)
    return thread, run["run_id"]


async def test_a_cancelled_run_goes_on_where_it_was(client, cast):
    thread, run = await held(client, cast, "planner")
    await client.runs.cancel(thread, run, wait=True)
    assert (await client.runs.get(thread, run))["status"] == "interrupted"
    assert (await client.threads.get_state(thread))["next"] == ["planner"]
    cast.endpoint.release(cast.model("planner"))
    result = await client.runs.wait(thread, "reflexion", input=None, context=cast.context)
    assert result["passed"]
    assert [len(cast.requests(role)) for role in ("actor", "reflector", "planner")] == [2, 1, 2]


async def test_a_run_that_is_rolled_back_leaves_nothing(client, cast):
    thread = await finished(client, cast)
    state = await client.threads.get_state(thread)
    cast.endpoint.hold(cast.model("evaluator"))
    run = await client.runs.create(thread, "reflexion", input={"task": "Other."}, context=cast.context)
    await cast.endpoint.wait_for_async(cast.model("evaluator"), 3, timeout_s=60)
    await client.runs.cancel(thread, run["run_id"], wait=True, action="rollback")
    cast.endpoint.release(cast.model("evaluator"))
    with pytest.raises(NotFoundError):
        await client.runs.get(thread, run["run_id"])
    after = await client.threads.get_state(thread)
    assert after["values"] == state["values"]
    assert after["checkpoint"] == state["checkpoint"]


@pytest.mark.parametrize("strategy", ["reject", "interrupt", "rollback", "enqueue"])
async def test_a_second_run_on_a_busy_thread(client, cast, strategy):
    other = Cast.new(cast.endpoint)
    other.plays_two_attempts()
    thread, first = await held(client, cast, "reflector")

    async def second():
        return await client.runs.create(
            thread,
            "reflexion",
            input={"task": "Another task."},
            context=other.context,
            multitask_strategy=strategy,
        )

    if strategy == "reject":
        with pytest.raises(ConflictError):
            await second()
        cast.endpoint.release(cast.model("reflector"))
        assert (await client.runs.join(thread, first))["passed"]
        assert other.requests("actor") == []
        return
    run = await second()
    if strategy == "enqueue":
        assert other.requests("actor") == []
        cast.endpoint.release(cast.model("reflector"))
    result = await client.runs.join(thread, run["run_id"])
    cast.endpoint.release(cast.model("reflector"))
    assert result["passed"]
    assert len(result["attempts"]) == 2
    assert (await client.threads.get_state(thread))["values"]["spec"]["text"] == "Another task."
    left = {run["run_id"]: run["status"] for run in await client.runs.list(thread)}
    assert (
        left
        == {run["run_id"]: "success"}
        | {
            "interrupt": {first: "interrupted"},
            "rollback": {},
            "enqueue": {first: "success"},
        }[strategy]
    )


async def test_a_thread_is_copied_and_deleted_with_its_checkpoints(client, cast):
    thread = await finished(client, cast)
    await client.threads.copy(thread)
    (copied, *_) = await client.threads.search(sort_by="created_at", sort_order="desc", limit=1)
    state = await client.threads.get_state(copied["thread_id"])
    assert state["values"]["answer"] == "answer 2"
    await client.threads.delete(thread)
    with pytest.raises(NotFoundError):
        await client.threads.get_state(thread)
