"""What LangGraph's server and Studio need of the graph: no persistence of its own, schemas, nothing that blocks."""

import importlib
import json
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from loop_bench import BAD, GOOD, Bench

import reflexion.graphs
from reflexion.graphs import build_graph

CODE = "```python\ndef f():\n    return {}\n```"


def exported():
    file = Path(__file__).parents[2] / "langgraph.json"
    module, _, name = json.loads(file.read_text())["graphs"]["reflexion"].partition(":")
    return getattr(importlib.import_module(module), name)


def test_the_exported_graph_has_neither_checkpointer_nor_store():
    graph = exported()
    assert (graph.checkpointer, graph.store) == (None, None)


def test_schemas_are_those_of_forms():
    graph = exported()
    assert set(graph.get_input_jsonschema()["properties"]) == {"task", "tests", "expect", "criteria", "messages"}
    assert {"answer", "score", "stop_reason", "attempts"} <= set(graph.get_output_jsonschema()["properties"])
    context = graph.get_context_jsonschema()
    assert set(context["properties"]) == set(reflexion.graphs.Settings.model_fields)
    assert context["properties"]["threshold"]["maximum"] == 1
    assert all(field.get("title") for field in context["properties"].values())
    json.dumps([context, graph.get_output_jsonschema()])


def test_the_drawing_has_the_edges_of_the_design():
    edges = {(edge.source, edge.target) for edge in exported().get_graph().edges}
    assert edges == {
        ("__start__", "recall"),
        ("recall", "actor"),
        ("actor", "evaluator"),
        ("evaluator", "reflector"),
        ("evaluator", "remember"),
        ("evaluator", "review"),
        ("reflector", "planner"),
        ("planner", "actor"),
        ("planner", "review"),
        ("review", "actor"),
        ("review", "reflector"),
        ("review", "remember"),
        ("remember", "__end__"),
    }


@pytest.fixture
def environment(bench, monkeypatch):
    monkeypatch.setenv("REFLEXION_BASE_URL", bench.server.base_url)
    monkeypatch.setenv("REFLEXION_API_KEY", "any")
    for role, model in {
        "ACTOR": "actor",
        "EVALUATOR": "critic",
        "REFLECTOR": "reflector",
        "PLANNER": "planner",
    }.items():
        monkeypatch.setenv(f"REFLEXION_{role}_MODEL", f"{model}-m")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("context", [None, {"max_attempts": 2}])
async def test_a_run_as_the_server_makes_it_never_blocks_the_loop(bench, context):
    graph = build_graph().compile()
    bench.server.script("critic-m", BAD, BAD, GOOD)
    with blockbuster_ctx():
        state = await graph.ainvoke({"task": "Sum a list."}, context=context)
    assert len(state["attempts"]) == (2 if context else 3)


async def test_a_run_over_sqlite_with_tests_and_a_critic_never_blocks_the_loop(bench: Bench):
    bench.server.script("actor-m", CODE.format(0), CODE.format(1), CODE.format(1))
    bench.server.script("critic-m", GOOD)
    async with bench.agent() as agent:
        with blockbuster_ctx():
            result = await agent.run("Write f.", tests="assert f() == 1", criteria=["It is short."], thread="t")
    assert result.passed
    assert [attempt.evaluator for attempt in result.attempts] == ["unit_tests", "critic"]
