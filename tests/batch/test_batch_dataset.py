"""A LangSmith dataset as input of a batch, and an experiment as its output."""

import pytest
from batch_bench import run
from langsmith import Client

from reflexion.batch import BatchError
from reflexion.batch.dataset import dataset_tasks, upload_experiment
from reflexion.batch.stored import stored_records
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


def fill(client, *inputs):
    """A dataset with these inputs; the references are not for the agent's eyes."""
    dataset = client.create_dataset("numbers")
    examples = [{"inputs": given, "reference_outputs": {"answer": "secret"}} for given in inputs]
    client.create_examples(dataset_id=dataset.id, examples=examples)


async def work(bench, client, **options):
    with dataset_tasks(client, "numbers") as tasks:
        async with bench.agent() as agent:
            batch = agent.run_batch(tasks, out=bench.out, **options)
            records = await run(batch)
            return records, (await batch.progress()).batch_id


async def test_examples_are_tasks_and_their_references_stay_unseen(bench, client):
    own = {"context": {"max_attempts": 1}, "priority": 3}
    fill(client, {"task": "Name number 1.", "expect": "1."}, {"question": "Name number 2."} | own, {"a": "x", "b": "y"})
    records, _ = await work(bench, client)
    by_line = {record.line: record for record in records}
    assert by_line[1].status == "passed"
    assert by_line[2].result["answer"] == "Answer: 2."
    assert by_line[3].status == "error"
    assert {record.id for record in records} == {
        str(example.id) for example in client.list_examples(dataset_name="numbers")
    }
    assert not any("secret" in str(request.body) for request in bench.server.requests)


async def test_results_become_an_experiment_on_the_dataset(bench, smith, datasets, client):
    fill(client, {"task": "Name number 1.", "expect": "1."}, {"task": "Name number 2.", "expect": "two"}, {"a": 1})
    _, batch_id = await work(bench, client)
    name, sent = upload_experiment(client, "numbers", "first", batch_id, stored_records(bench.out))
    (experiment,) = datasets.experiments.values()
    (dataset,) = datasets.datasets
    assert (name, sent) == (experiment["name"], 3) == (f"first-{batch_id[:8]}", 3)
    assert experiment["reference_dataset_id"] == dataset
    smith.wait_for(lambda server: len(server.runs) == 3 and len(server.feedback) == 12)
    runs = {run.fields["reference_example_id"]: run for run in smith.runs}
    assert set(runs) == set(datasets.examples)
    passed = {(str(f["run_id"])): f["score"] for f in smith.feedback if f["key"] == "passed"}
    by_status = {run.outputs["status"]: passed[str(run.id)] for run in runs.values()}
    assert by_status == {"passed": 1.0, "failed": 0.0, "error": None}


async def test_an_experiment_that_is_sent_twice_is_there_once(bench, smith, datasets, client):
    fill(client, {"task": "Name number 1.", "expect": "1."})
    _, batch_id = await work(bench, client)
    for _ in range(2):
        upload_experiment(client, "numbers", "first", batch_id, stored_records(bench.out))
    smith.wait_for(lambda server: b"feedback" in server.bodies)
    assert (len(datasets.experiments), len(smith.runs), len(smith.feedback)) == (1, 1, 4)


async def test_what_was_not_run_is_not_sent(bench, datasets, client):
    fill(client, *({"task": f"Name number {number}.", "expect": "1."} for number in range(3)))
    bench.replies = dict.fromkeys(range(3), Reply.error(400, "too long", code="context_length_exceeded"))
    records, batch_id = await work(bench, client, fail_fast=True, concurrency=1)
    assert [record.status for record in records].count("not_run") == 2
    assert upload_experiment(client, "numbers", "first", batch_id, stored_records(bench.out))[1] == 1


@pytest.mark.parametrize("name", ["numbers", "nowhere"])
def test_a_dataset_that_is_empty_or_missing_is_said(client, datasets, name):
    client.create_dataset("numbers")
    with pytest.raises(BatchError, match=f"dataset '{name}'"):
        dataset_tasks(client, name)


def test_a_server_that_refuses_is_said(client, smith):
    smith.misbehave(Reply(status=403))
    with pytest.raises(BatchError, match="experiment 'first-abc': cannot be sent"):
        upload_experiment(client, "numbers", "first", "abc", [])
