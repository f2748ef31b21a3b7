"""The forms, the settings and the streams that Studio and the SDK get from the server."""

import asyncio

import pytest
from dev_server import LESSON, PLAN, ROOT, SECRET

from reflexion.graphs import Settings

TASK = {"task": "Sum a list."}


async def schemas(client) -> dict:
    (assistant,) = await client.assistants.search(metadata={"created_by": "system"})
    return await client.assistants.get_schemas(assistant["assistant_id"])


async def test_the_input_form_asks_for_the_task_and_what_judges_it(client):
    fields = (await schemas(client))["input_schema"]["properties"]
    assert list(fields) == ["task", "tests", "expect", "criteria", "messages"]
    assert all(field["title"] and field["description"] for field in fields.values())
    assert [fields[name]["type"] for name in fields] == ["string", "string", "string", "array", "array"]


async def test_the_settings_form_has_a_plain_type_range_and_sentence_for_every_field(client):
    fields = (await schemas(client))["context_schema"]["properties"]
    assert set(fields) == set(Settings.model_fields)
    assert all(field["title"] and field["type"] for field in fields.values())
    assert not [name for name, field in fields.items() if "anyOf" in field or "pattern" in field]
    assert (fields["threshold"]["minimum"], fields["threshold"]["maximum"]) == (0, 1)
    assert fields["attempt_style"]["enum"] == ["auto", "fresh", "revise"]
    of_type = {
        kind: {name for name, field in fields.items() if field.get("langgraph_type") == kind}
        for kind in ("model", "prompt")
    }
    roles = ("actor", "evaluator", "reflector", "planner")
    assert of_type["prompt"] == {f"{role}_prompt" for role in roles}
    assert of_type["model"] == {"model", "cheaper_model", *(f"{role}_model" for role in roles)}


async def test_the_graph_is_drawn_with_its_nodes_names(client):
    (assistant,) = await client.assistants.search(metadata={"created_by": "system"})
    drawn = await client.assistants.get_graph(assistant["assistant_id"])
    names = {node["id"] for node in drawn["nodes"]}
    assert {"recall", "actor", "evaluator", "reflector", "planner", "remember"} <= names
    assert len([edge for edge in drawn["edges"] if edge.get("conditional")]) == 8


async def test_an_assistant_keeps_settings_of_its_own(client, cast):
    strict = await client.assistants.create("reflexion", context=cast.context | {"max_attempts": 1}, name="one attempt")
    result = await client.runs.wait(None, strict["assistant_id"], input=TASK)
    assert (result["stop_reason"], result["passed"], len(result["attempts"])) == ("max_attempts", False, 1)
    lenient = await client.assistants.create("reflexion", context=cast.context | {"threshold": 0.3})
    result = await client.runs.wait(None, lenient["assistant_id"], input=TASK)
    assert (result["stop_reason"], len(result["attempts"])) == ("passed", 1)
    await client.assistants.delete(strict["assistant_id"])
    await client.assistants.delete(lenient["assistant_id"])


async def test_a_run_without_a_thread_gives_the_result(client, cast):
    result = await client.runs.wait(None, "reflexion", input=TASK, context=cast.context)
    assert (result["answer"], result["score"], result["passed"]) == ("answer 2", 0.9, True)
    assert [attempt["score"] for attempt in result["attempts"]] == [0.4, 0.9]


async def test_stateless_runs_that_end_together_all_end_and_take_no_thread_with_them(client, cast, server):
    kept = [(await client.threads.create())["thread_id"] for _ in range(3)]
    runs = [client.runs.wait(None, "reflexion", input=TASK, context=cast.context) for _ in range(8)]
    assert all(result["stop_reason"] == "passed" for result in await asyncio.gather(*runs))
    for thread in kept:
        assert (await client.threads.get(thread))["thread_id"] == thread
    assert "IndexError" not in server.log.read_text()


async def test_every_step_says_in_plain_values_what_it_did(client, cast):
    updates, values = [], []
    async for part in client.runs.stream(
        None, "reflexion", input=TASK, context=cast.context, stream_mode=["updates", "values"]
    ):
        (updates if part.event == "updates" else values).append(part.data)
    assert [name for update in updates for name in update] == [
        "recall",
        "actor",
        "evaluator",
        "reflector",
        "planner",
        "actor",
        "evaluator",
        "remember",
    ]
    assert "__overwrite__" not in str(updates)
    assert {"planner": {"plan": PLAN}} in updates
    assert {"reflector": {"attempts": [{"number": 1, "reflection": LESSON}]}} in updates
    assert values[-1]["attempts"][1]["plan"] == PLAN
    assert values[-1]["stop_reason"] == "passed"
    assert not any("calls" in value for value in values), "the ledger is no result"


async def test_events_and_tokens_are_streamed(client, cast):
    events, texts = [], []
    async for part in client.runs.stream(
        None,
        "reflexion",
        input=TASK,
        context=cast.context | {"stream": True},
        stream_mode=["custom", "messages-tuple"],
    ):
        if part.event == "custom":
            events.append(part.data)
        if part.event == "messages":
            message, about = part.data
            texts.append((about["langgraph_node"], message["content"]))
    tokens = "".join(event["text"] for event in events if event["event"] == "token" and event["role"] == "actor")
    assert tokens == "answer 1answer 2"
    assert [event["event"] for event in events if event["event"] != "token"] == [
        "attempt_started",
        "attempted",
        "usage",
        "scored",
        "usage",
        "reflected",
        "usage",
        "planned",
        "usage",
        "attempt_started",
        "attempted",
        "usage",
        "scored",
        "usage",
        "stopped",
    ]
    assert "".join(text for node, text in texts if node == "actor") == "answer 1answer 2"


async def test_a_prompt_from_the_form_reaches_the_model(client, cast):
    prompt = "You write for beginners.\n\nKeep to this:\n{{rules}}"
    context = cast.context | {"actor_prompt": prompt, "evaluator_prompt": "Judge by:\n{{criteria}}\n{{unknown}}"}
    result = await client.runs.wait(None, "reflexion", input=TASK | {"criteria": ["It is short."]}, context=context)
    assert result["passed"]
    assert cast.endpoint.requests_for(cast.model("actor"))[1].body["messages"][0]["content"] == (
        f"You write for beginners.\n\nKeep to this:\n- {LESSON}"
    )
    assert cast.requests("evaluator")[0].startswith("Judge by:\n1. It is short.\n{{unknown}}")


@pytest.mark.parametrize(
    ("given", "context", "said"),
    [
        ({"task": " "}, {}, "no task"),
        ({"task": "x", "tests": "def"}, {}, "line 1"),
        ({"task": "x"}, {"threshold": 7}, "threshold"),
        ({"task": "x"}, {"actor_prompt": "Be brief."}, "lacks {{rules}}"),
    ],
)
async def test_what_cannot_be_run_fails_with_a_reason(client, cast, given, context, said):
    result = await client.runs.wait(None, "reflexion", input=given, context=cast.context | context, raise_error=False)
    assert said in result["__error__"]["message"]
    assert cast.requests("actor") == []


async def test_code_that_nobody_trusts_is_judged_without_blocking_and_no_secret_is_written(client, cast, server):
    code = "```python\ndef f():\n    return {}\n```"
    cast.endpoint.script(cast.model("actor"), code.format(0), code.format(1))
    thread = await client.threads.create()
    given = {"task": "Write f.", "tests": "assert f() == 1"}
    callers = "key-of-the-caller"
    config = {"configurable": cast.context | {"my_key": callers}}
    result = await client.runs.wait(thread["thread_id"], "reflexion", input=given, config=config)
    assert result["passed"]
    assert result["attempts"][0]["evaluator"] == "unit_tests"
    state = await client.threads.get_state(thread["thread_id"])
    history = await client.threads.get_history(thread["thread_id"])
    folder = server.log.parent
    written = [file for file in folder.rglob("*") if file.is_file() and ROOT not in file.resolve().parents]
    database = [file for file in written if ".sqlite" in file.name]
    assert database
    assert [file.name for file in written if SECRET.encode() in file.read_bytes()] == []
    assert [file.name for file in database if callers.encode() in file.read_bytes()] == []
    assert callers not in str([state, history])
    assert "BlockingError" not in server.log.read_text()
