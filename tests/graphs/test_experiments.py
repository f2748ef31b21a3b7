"""A dataset as input of a batch, and a LangSmith experiment as its output."""

from uuid import uuid4

import pytest
from langsmith import Client, aevaluate, evaluate
from langsmith.schemas import Example
from loop_bench import GOOD

from reflexion.evaluators import Match, as_langsmith_evaluator
from reflexion.graphs import ConfigurationError, as_target, evaluate_dataset
from reflexion.models import Budget
from reflexion.testing import FakeDatasets, FakeLangSmith, Reply


@pytest.fixture
def smith():
    with FakeLangSmith() as server:
        yield server


@pytest.fixture
def datasets(smith):
    datasets = FakeDatasets()
    datasets.mount(smith)
    return datasets


@pytest.fixture
def client(smith, datasets):
    client = Client(api_url=smith.url, api_key="any")
    yield client
    client.close()


def examples(*answers):
    return [Example(id=uuid4(), inputs={"task": f"Say {a}."}, outputs={"answer": a}) for a in answers]


def say(body):
    return body["messages"][-1]["content"].removeprefix("Say ").removesuffix(".")


async def test_a_dataset_becomes_an_experiment(bench, smith, datasets, client):
    bench.server.default("actor-m", say)
    bench.server.default("critic-m", GOOD)
    dataset = client.create_dataset("words")
    client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {"inputs": {"task": f"Say {a}."}, "reference_outputs": {"answer": b}}
            for a, b in [("one", "one"), ("two", "2")]
        ],
    )
    async with bench.agent() as agent:
        experiment = await evaluate_dataset(
            agent, "words", evaluators=[Match()], client=client, name="first", threshold=0.5
        )
    client.flush()
    by_answer = {result.outputs["answer"]: result for result in experiment.results}
    assert {answer: result.scores["match"] for answer, result in by_answer.items()} == {"one": 1.0, "two": 0.0}
    assert [result.scores["passed"] for result in experiment.results] == [1.0, 1.0]
    assert (experiment.mean("match"), experiment.mean("attempts"), experiment.mean("nothing")) == (0.5, 1.0, None)
    assert experiment.name.startswith("first-")
    made = next(iter(datasets.experiments.values()))
    assert made["id"] in experiment.url
    assert made["extra"]["metadata"]["threshold"] == 0.5
    assert (made["name"], made["reference_dataset_id"]) == (experiment.name, str(dataset.id))
    sent = {(f["run_id"], f["key"]): f["score"] for f in smith.feedback}
    of_examples = {(r.run_id, key): score for r in experiment.results for key, score in r.scores.items()}
    assert len(of_examples) == 8
    assert of_examples.items() <= sent.items()


async def test_each_example_leads_to_its_trace(bench, smith, client):
    bench.server.default("critic-m", GOOD)
    dataset = client.create_dataset("words")
    client.create_examples(dataset_id=dataset.id, examples=[{"inputs": {"task": "Say one."}}])
    async with bench.agent() as agent:
        (result,) = (await evaluate_dataset(agent, "words", client=client)).results
    client.flush()
    (root,) = [run for run in smith.runs if run.id == result.run_id]
    assert root["reference_example_id"] == result.example_id
    inside = [run for run in smith.runs if run.trace_id == root.trace_id]
    assert {"reflexion", "recall", "actor", "evaluator", "remember"} <= {run.name for run in inside}
    (own,) = [run for run in inside if run.parent_id == result.run_id]
    assert own.metadata["thread_id"] == result.outputs["thread_id"]


async def test_an_example_that_fails_loses_none_of_the_others(bench, smith, client):
    bench.server.default("actor-m", say)
    bench.server.default("critic-m", GOOD)
    data = [*examples("one", "two"), Example(id=uuid4(), inputs={"tests": "assert f(1)"}, outputs={"answer": "x"})]
    async with bench.agent() as agent:
        experiment = await evaluate_dataset(agent, data, evaluators=[Match()], client=client, upload=False)
    *good, bad = sorted(experiment.results, key=lambda result: bool(result.error))
    assert [result.scores["match"] for result in good] == [1.0, 1.0]
    assert "need a text named task" in bad.error
    assert (bad.outputs, bad.scores) == ({}, {"passed": None, "match": None})
    assert "the run failed" in bad.comments["match"]
    assert experiment.url is None


async def test_what_is_not_uploaded_is_not_sent_at_all(bench, smith, datasets, client):
    bench.server.default("critic-m", GOOD)
    async with bench.agent() as agent:
        await evaluate_dataset(agent, examples("one"), evaluators=[Match()], client=client, upload=False)
    client.flush()
    assert (smith.runs, smith.feedback, datasets.experiments) == ([], [], {})


async def test_a_model_that_is_down_is_a_failure_and_no_wrong_answer(bench, smith, client):
    bench.server.default("actor-m", Reply(status=401))
    async with bench.agent() as agent:
        experiment = await evaluate_dataset(agent, examples("one"), evaluators=[Match()], client=client, upload=False)
    assert "no attempt was made: model_error" in experiment.results[0].error
    assert experiment.results[0].scores["match"] is None


async def test_all_examples_share_one_budget(bench, smith, client):
    bench.server.default("critic-m", GOOD)
    budget = Budget("experiment", requests=5)
    async with bench.agent() as agent:
        experiment = await evaluate_dataset(
            agent, examples(*"abcdef"), concurrency=1, budget=budget, client=client, upload=False
        )
    assert sum(bench.counts().values()) == 5
    assert [bool(result.error) for result in experiment.results] == [False, False, False, True, True, True]
    assert all("budget" in result.error for result in experiment.results if result.error)


async def test_no_more_examples_are_worked_on_at_once_than_allowed(bench, smith, client):
    bench.server.default("critic-m", GOOD)
    async with bench.agent() as agent:
        await evaluate_dataset(agent, examples(*"abcdefgh"), concurrency=2, client=client, upload=False)
        assert 1 <= bench.server.peak_concurrency <= 2
        with pytest.raises(ValueError, match="concurrency"):
            await evaluate_dataset(agent, examples("a"), concurrency=0, client=client, upload=False)


async def test_a_setting_that_does_not_exist_is_refused_before_the_first_example(bench, smith, client):
    async with bench.agent() as agent:
        for wrong in ({"max_attempt": 1}, {"thread": "one-for-all"}):
            with pytest.raises(ConfigurationError, match="there is no such setting"):
                await evaluate_dataset(agent, examples("a"), client=client, upload=False, **wrong)
    assert bench.server.requests == []


async def test_the_agent_never_sees_the_reference(bench, smith, client):
    bench.server.default("critic-m", GOOD)
    data = [
        Example(id=uuid4(), inputs={"question": "Say it."}, outputs={"answer": "the-secret", "criteria": ["c-secret"]})
    ]
    async with bench.agent() as agent:
        await evaluate_dataset(agent, data, client=client, upload=False)
    assert not any("secret" in str(request.body) for request in bench.server.requests)


async def test_target_and_evaluators_serve_in_langsmiths_own_functions(bench, smith, client):
    bench.server.default("actor-m", say)
    bench.server.default("critic-m", GOOD)
    judges = [as_langsmith_evaluator(Match()), as_langsmith_evaluator(lambda answer: len(answer) / 4, "short")]
    async with bench.agent() as agent:
        rows = await aevaluate(
            as_target(agent), data=examples("one"), evaluators=judges, client=client, upload_results=False
        )
        (row,) = [row async for row in rows]
    assert {r.key: r.score for r in row["evaluation_results"]["results"]} == {"match": 1.0, "short": 0.75}


def test_evaluators_serve_in_evaluate_that_is_not_async(smith, client):
    judges = [as_langsmith_evaluator(Match())]
    rows = evaluate(
        lambda inputs: {"answer": "one"}, data=examples("one"), evaluators=judges, client=client, upload_results=False
    )
    (row,) = rows
    assert [(r.key, r.score) for r in row["evaluation_results"]["results"]] == [("match", 1.0)]
