"""A person's review through the server's API, and the ledger that the server's runs write."""

import uuid

import pytest
from dev_server import LESSON, ROLES, SECRET, Cast

from reflexion.graphs import ReviewPending, open_reflexion
from reflexion.models import ConnectionSettings

TASK = {"task": "Sum a list."}


async def waiting(client, cast: Cast, **context) -> tuple[str, dict]:
    """A thread that waits for a review, and what it asks."""
    thread = (await client.threads.create())["thread_id"]
    result = await client.runs.wait(thread, "reflexion", input=TASK, context=cast.context | context)
    (interrupt,) = result["__interrupt__"]
    assert (await client.threads.get(thread))["status"] == "interrupted"
    return thread, interrupt


async def resume(client, thread: str, decision: object) -> dict:
    """Without the context: whoever resumes need not know it."""
    return await client.runs.wait(thread, "reflexion", command={"resume": decision})


async def test_an_edited_reflection_is_followed_and_nothing_is_asked_again(client, cast):
    thread, interrupt = await waiting(client, cast, review="attempt")
    assert interrupt["value"]["reflection"] == LESSON
    counts = [len(cast.requests(role)) for role in ROLES]
    assert counts == [1, 1, 1, 1]
    result = await resume(client, thread, {"action": "edit", "reflection": "Count with a loop."})
    assert result["passed"]
    assert "Count with a loop." in cast.requests("actor")[1]
    assert LESSON not in cast.requests("actor")[1]
    assert len(cast.requests("reflector")) == len(cast.requests("planner")) == 1


@pytest.mark.parametrize(
    ("decision", "answer", "reason"),
    [
        ({"action": "approve"}, "answer 2", "passed"),
        ("approve", "answer 2", "passed"),
        ({"action": "edit", "answer": "mine"}, "mine", "passed"),
        ({"action": "stop"}, "answer 2", "cancelled"),
    ],
)
async def test_an_answer_is_accepted_edited_or_given_up(client, cast, decision, answer, reason):
    thread, interrupt = await waiting(client, cast, review="answer")
    assert interrupt["value"]["about"] == "answer"
    result = await resume(client, thread, decision)
    assert (result["answer"], result["stop_reason"]) == (answer, reason)
    assert len(cast.requests("actor")) == 2


async def test_what_is_no_decision_fails_and_the_thread_still_waits(client, cast):
    thread, _ = await waiting(client, cast, review="answer")
    with pytest.raises(Exception, match="action"):
        await resume(client, thread, {"action": "perhaps"})
    assert (await resume(client, thread, {"action": "approve"}))["passed"]


async def test_settings_hold_over_a_review_though_nobody_repeats_them(client, cast):
    thread, _ = await waiting(client, cast, review="attempt", budget_requests=5)
    result = await resume(client, thread, "approve")
    assert result["stop_reason"] == "budget"
    assert sum(len(cast.requests(role)) for role in ROLES) == 5


async def test_what_waits_on_the_server_can_be_decided_in_python(server, client, cast):
    thread, _ = await waiting(client, cast, review="answer")
    async with open_reflexion(database_url=server.database_url) as agent:
        result = await agent.run(thread=thread, decision="approve")
        assert (result.passed, result.answer) == (True, "answer 2")
        lines = await agent.persistence.ledger.lines(thread_id=thread)
    assert [line["role"] for line in lines] == ["actor", "evaluator", "reflector", "planner", "actor", "evaluator"]


async def test_what_waits_in_python_can_be_decided_on_the_server(server, client, cast):
    thread = str(uuid.uuid4())
    connection = ConnectionSettings(base_url=server.endpoint.base_url, api_key=SECRET)
    async with open_reflexion(connection=connection, database_url=server.database_url) as agent:
        with pytest.raises(ReviewPending):
            await agent.run(TASK["task"], thread=thread, review="answer", **cast.context)
    await client.threads.create(thread_id=thread, graph_id="reflexion")
    result = await resume(client, thread, {"action": "edit", "answer": "mine"})
    assert (result["passed"], result["answer"]) == (True, "mine")
    assert [len(cast.requests(role)) for role in ROLES] == [2, 2, 1, 1]


async def test_another_run_on_a_thread_that_waits_takes_its_place(client, cast):
    thread, _ = await waiting(client, cast, review="answer")
    result = await client.runs.wait(thread, "reflexion", input={"task": "Sort a list."}, context=cast.context)
    assert (result["passed"], len(result["attempts"])) == (True, 1)
    assert (await client.threads.get(thread))["status"] == "idle"


async def test_a_threads_budget_holds_on_the_server(client, cast):
    context = cast.context | {"thread_budget_requests": 7}
    thread = (await client.threads.create())["thread_id"]
    first = await client.runs.wait(thread, "reflexion", input=TASK, context=context)
    second = await client.runs.wait(thread, "reflexion", input={"task": "Sort a list."}, context=context)
    assert (first["passed"], second["stop_reason"]) == (True, "budget")
    assert sum(len(cast.requests(role)) for role in ROLES) == 7
