"""`reflexion batch`: what it prints, what it pays, and how it goes on."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from reflexion.testing import FakeDatasets, FakeLangSmith, Reply

PRICES = json.dumps({model: {"input": 1, "output": 2} for model in ("m", "reflector-m", "planner-m")})


def number_in(body):
    return int(re.search(r"Name number (\d+)\.", json.dumps(body["messages"]))[1])


def write(folder, *numbers, extra=()):
    lines = [json.dumps({"id": f"t{n}", "task": f"Name number {n}.", "expect": f"{n}."}) for n in numbers]
    path = folder / "in.jsonl"
    path.write_text("".join(line + "\n" for line in [*lines, *extra]))
    return path


@pytest.fixture
def counting(model, monkeypatch):
    """A model that is right but for number 3, and only after it has thought about number 2."""
    for name, value in {"PRICES": PRICES, "REFLECTOR_MODEL": "reflector-m", "PLANNER_MODEL": "planner-m"}.items():
        monkeypatch.setenv(f"REFLEXION_{name}", value)

    def reply(body):
        number = number_in(body)
        wrong = number == 3 or (number == 2 and "Look it up" not in json.dumps(body["messages"]))
        return "Answer: none." if wrong else f"Answer: {number}."

    model.default("m", reply)
    model.default("reflector-m", {"improvement": "Look it up."})
    model.default("planner-m", "1. Look it up.")
    return model


def records(folder):
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_a_batch_prints_its_summary_as_json(reflexion, counting, tmp_path):
    path = write(tmp_path, 1, 2, 3, extra=["nonsense"])
    done = reflexion("batch", path, "--out", "out.jsonl", "--no-memory", "--json", "--what-if", "m", "--what-if", "who")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert told["statuses"] == {"passed": 2, "failed": 1, "unscored": 0, "error": 1, "not_run": 0}
    assert [(row["attempt"], row["count"], row["of"]) for row in told["by_attempt"]] == [
        (1, 1, 3),
        (2, 2, 3),
        (3, 2, 3),
    ]
    assert told["usage"]["requests"] == told["spent"]["requests"] == counting.count
    assert (told["complete"], told["ran"], told["stopped"]) == (True, 4, "")
    assert float(told["what_if_usd"]["m"]) == pytest.approx(float(told["usage"]["cost_usd"]), rel=0.01)
    assert told["what_if_usd"]["who"] is None
    assert [record["id"] for record in records(tmp_path)] == ["t1", "t2", "t3", "line-4"]


def test_people_get_tables_and_sentences(reflexion, counting, tmp_path):
    done = reflexion("batch", write(tmp_path, 1, 2, 3, extra=["nonsense"]), "--out", "out.jsonl", "--no-memory")
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert rows[0] == "4 tasks: 2 passed, 1 failed, 0 unscored, 1 error, 0 not run"
    assert "attempt 2 2 67 % 21 – 94 %" in rows
    assert any(row.startswith("reflecting: 1 of 2 that failed at first passed later (50 %, 9 – 91 %)") for row in rows)
    assert any(row.startswith("no verdict, 1 from line-4: is not JSON") for row in rows)
    assert "line-4: is not JSON" in done.stderr
    assert done.stderr.strip().endswith(
        "results are in out.jsonl; --retry-failed runs the 1 again that did not pass; "
        "no task is in 1 of the lines: mend them and run it again"
    )


def test_all_passed_is_exit_code_0_and_again_is_nothing_to_do(reflexion, counting, tmp_path):
    path = write(tmp_path, 1, 4)
    first = reflexion("batch", path, "--out", "out.jsonl", "--no-memory")
    paid = counting.count
    again = reflexion("batch", path, "--out", "out.jsonl", "--no-memory")
    assert (first.exit_code, again.exit_code, paid, counting.count) == (0, 0, 2, 2)
    assert "nothing to do, all is finished: 2 tasks in out.jsonl" in again.stderr


def test_failed_ones_are_run_again_on_request(reflexion, counting, tmp_path):
    path = write(tmp_path, 1, 3)
    options = ["batch", path, "--out", "out.jsonl", "--no-memory", "--max-attempts", "1", "--json"]
    reflexion(*options)
    counting.default("m", "Answer: 3.")
    told = json.loads(reflexion(*options, "--retry-failed").stdout)
    assert (told["ran"], told["statuses"]["passed"], counting.count) == (1, 2, 3)


def test_changed_settings_are_noticed_and_can_be_accepted(reflexion, counting, tmp_path):
    path = write(tmp_path, 1)
    options = ["batch", path, "--out", "out.jsonl", "--no-memory"]
    reflexion(*options)
    refused = reflexion(*options, "--threshold", "0.5")
    assert refused.exit_code == 2
    assert "threshold was 0.8, now 0.5" in refused.stderr
    assert reflexion(*options, "--threshold", "0.5", "--accept-changes").exit_code == 0


def test_a_mistake_before_the_first_result_binds_nobody(reflexion, counting, tmp_path):
    path = write(tmp_path, 1)
    wrong = reflexion("batch", path, "--out", "out.jsonl", "--no-memory", "--model", "dear", "--budget-usd", "1")
    assert (wrong.exit_code, counting.count) == (2, 0)
    assert reflexion("batch", path, "--out", "out.jsonl", "--no-memory", "--budget-usd", "1").exit_code == 0


def test_tasks_may_come_from_stdin(reflexion, counting, tmp_path):
    text = write(tmp_path, 1, 4).read_text()
    done = reflexion("batch", "-", "--out", "out.jsonl", "--no-memory", "--json", stdin=text)
    assert (done.exit_code, json.loads(done.stdout)["tasks"]) == (0, 2)


def test_quiet_prints_nothing(reflexion, counting, tmp_path):
    done = reflexion("batch", write(tmp_path, 1, 3), "--out", "out.jsonl", "--no-memory", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "")


def test_a_budget_that_runs_out_ends_it_and_more_goes_on(reflexion, counting, tmp_path):
    path = write(tmp_path, *range(10, 40))
    options = ["batch", path, "--out", "out.jsonl", "--no-memory", "--concurrency", "1", "--json", "--budget-tokens"]
    done = reflexion(*options, "1000")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert told["spent"]["tokens"] <= 1000
    assert told["statuses"]["not_run"] == sum(group["count"] for group in told["not_run"]) > 0
    assert (told["complete"], "budget" in told["stopped"]) == (False, True)
    assert "the same command goes on when it is given more" in done.stderr
    more = reflexion(*options, "100000", "--retry-failed")
    assert (more.exit_code, json.loads(more.stdout)["statuses"]["passed"]) == (0, 30)


def test_the_summary_alone_needs_no_model_and_no_tasks(reflexion, counting, tmp_path):
    reflexion("batch", write(tmp_path, 1, 3), "--out", "out.jsonl", "--no-memory")
    paid = counting.count
    counting.close()
    done = reflexion("batch", "--summary", "--out", "out.jsonl", "--json")
    assert (done.exit_code, json.loads(done.stdout)["statuses"]["passed"], counting.count) == (1, 1, paid)


def test_an_endpoint_that_is_not_there_is_exit_code_3(reflexion, monkeypatch, tmp_path):
    monkeypatch.setenv("REFLEXION_MAX_RETRIES", "0")
    options = ["--base-url", "http://127.0.0.1:9/v1", "--model", "m"]
    done = reflexion("batch", write(tmp_path, 1), "--out", "out.jsonl", "--no-memory", *options)
    assert done.exit_code == 3


def test_a_key_that_is_refused_is_exit_code_2(reflexion, model, tmp_path):
    model.default("m", Reply.error(401, "no"))
    done = reflexion("batch", write(tmp_path, *range(20)), "--out", "out.jsonl", "--no-memory")
    assert done.exit_code == 2
    assert "REFLEXION_API_KEY" in done.stderr


def test_a_dataset_goes_in_and_an_experiment_comes_out(reflexion, counting, monkeypatch, tmp_path):
    datasets = FakeDatasets()
    with FakeLangSmith() as smith:
        datasets.mount(smith)
        monkeypatch.setenv("LANGSMITH_ENDPOINT", smith.url)
        monkeypatch.setenv("LANGSMITH_API_KEY", "any")
        dataset = datasets.answer("POST", "/datasets", b'{"name": "numbers"}')[1]["id"]
        example = {"dataset_id": dataset, "inputs": {"task": "Name number 1.", "expect": "1."}, "outputs": {}}
        datasets.answer("POST", "/examples", json.dumps(example).encode())
        options = ["--dataset", "numbers", "--experiment", "first", "--out", "out.jsonl", "--no-memory", "--json"]
        done = reflexion("batch", *options)
        smith.wait_for(lambda server: len(server.feedback) == 4)
    (experiment,) = datasets.experiments.values()
    assert (done.exit_code, json.loads(done.stdout)["experiment"]) == (0, experiment["name"])
    assert [run.fields["reference_example_id"] for run in smith.runs] == list(datasets.examples)


def test_an_experiment_that_is_not_taken_is_sent_by_the_same_command(reflexion, counting, monkeypatch, tmp_path):
    datasets = FakeDatasets()
    with FakeLangSmith() as smith:
        datasets.mount(smith)
        monkeypatch.setenv("LANGSMITH_ENDPOINT", smith.url)
        monkeypatch.setenv("LANGSMITH_API_KEY", "any")
        dataset = datasets.answer("POST", "/datasets", b'{"name": "numbers"}')[1]["id"]
        example = {"dataset_id": dataset, "inputs": {"task": "Name number 1.", "expect": "1."}, "outputs": {}}
        datasets.answer("POST", "/examples", json.dumps(example).encode())

        def reply(body):
            smith.misbehave(Reply(status=403))  # from now on, so when the results are to be sent
            return "Answer: 1."

        counting.default("m", reply)
        options = ["--dataset", "numbers", "--experiment", "first", "--out", "out.jsonl", "--no-memory", "--json"]
        refused = reflexion("batch", *options)
        smith.behave()
        done = reflexion("batch", *options)
        smith.wait_for(lambda server: len(server.feedback) == 4)
    assert (refused.exit_code, done.exit_code, counting.count) == (2, 0, 1)
    assert "cannot be sent to LangSmith" in refused.stderr


def start(server, folder, *arguments):
    environment = os.environ | {"REFLEXION_BASE_URL": server.base_url, "REFLEXION_MODEL": "m"}
    command = [
        sys.executable,
        "-m",
        "reflexion.cli",
        "batch",
        "in.jsonl",
        "--out",
        "out.jsonl",
        "--no-memory",
        *arguments,
    ]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_an_interrupt_breaks_off_and_the_same_command_goes_on(counting, tmp_path):
    write(tmp_path, *range(10, 30))
    silent = {"from": 14}

    def reply(body):
        number = number_in(body)
        return Reply(hang=True) if number >= silent["from"] else f"Answer: {number}."

    counting.default("m", reply)
    process = start(counting, tmp_path, "--concurrency", "4", "--json")
    counting.wait_for("m", 4 + 4, timeout_s=100)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=100)
    told = json.loads(out)
    assert (process.returncode, told["interrupted"], told["complete"], told["ran"]) == (130, True, False, 4)
    assert "broken off with 4 tasks finished; the same command goes on" in error
    silent["from"] = 100
    again = start(counting, tmp_path, "--concurrency", "4", "--json")
    out, error = again.communicate(timeout=100)
    assert again.returncode == 0, error
    assert (json.loads(out)["ran"], counting.count) == (16, 8 + 16)
    assert [record["id"] for record in records(tmp_path)] == [f"t{number}" for number in range(10, 30)]


def test_a_second_interrupt_ends_it_at_once(counting, tmp_path):
    write(tmp_path, 10)
    counting.default("m", Reply(hang=True))
    process = start(counting, tmp_path)
    counting.wait_for("m", timeout_s=100)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode == 130


def test_a_full_disk_is_said_and_what_was_written_counts(counting, tmp_path):
    resource = pytest.importorskip("resource")
    write(tmp_path, *range(10, 70))
    command = [sys.executable, "-m", "reflexion.cli", "batch", "in.jsonl", "--out", "out.jsonl", "--no-memory"]
    command += ["--database", "memory://", "--quiet"]
    environment = os.environ | {"REFLEXION_BASE_URL": counting.base_url, "REFLEXION_MODEL": "m"}
    full = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert full.returncode == 2
    assert "out.jsonl: cannot be written" in full.stderr
    assert len(full.stderr.strip().splitlines()) == 1
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, timeout=200)
    assert done.returncode == 0
    assert [record["id"] for record in records(tmp_path)] == [f"t{number}" for number in range(10, 70)]
