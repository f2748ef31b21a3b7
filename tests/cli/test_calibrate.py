"""`reflexion calibrate`: what it prints, what it pays, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from reflexion.testing import Reply

TRUTHS = [True, False, True, False, True, False]


def write(folder, *, truths=TRUTHS, name="examples.jsonl", **fields):
    examples = [
        {
            "id": f"e{number}",
            "task": "Say which.",
            "answer": f"{'right' if truth else 'wrong'} {number}",
            "truth": truth,
        }
        for number, truth in enumerate(truths)
    ]
    path = folder / name
    path.write_text("".join(json.dumps(example | fields) + "\n" for example in examples))
    return path


def judge(body):
    """A critic that sees through every second wrong answer."""
    prompt = body["messages"][-1]["content"]
    return {"score": 9} if "right" in prompt or "wrong 1" in prompt else {"score": 3, "weaknesses": "It is wrong."}


@pytest.fixture
def critic(model):
    model.default("m", judge)
    return model


def result_of(done):
    return json.loads(done.stdout)


def test_it_counts_false_passes_and_false_failures_of_the_critic(reflexion, critic, tmp_path):
    done = reflexion("calibrate", write(tmp_path), "--json")
    result = result_of(done)
    assert done.exit_code == 0
    assert (result["false_passes"]["count"], result["false_passes"]["of"]) == (1, 3)
    assert result["false_failures"]["count"] == 0
    assert result["evaluators"] == {"critic": 6}
    assert result["usage"]["requests"] == critic.count == 6
    assert result["usage"]["prompt_tokens"] > 0


def test_people_get_tables_and_what_to_make_of_them(reflexion, critic, tmp_path):
    done = reflexion("calibrate", write(tmp_path), "--threshold", "0.95")
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert "false failures 100 % 3 of 3 44 – 100 %" in rows
    assert "0.6 33 % 0 % balanced" in rows
    assert "0.9 to 1 4 0.90 75 % 30 – 95 %" in rows
    assert "fails everything, all 3 right answers too" in done.stdout
    assert "Too few wrong answers" in done.stdout
    assert "6 requests" in done.stdout


def test_of_many_thresholds_a_dozen_and_the_balanced_one_are_shown(reflexion, model, tmp_path):
    def by_number(body):
        number = int(re.search(r"(?:right|wrong) (\d+)", body["messages"][-1]["content"])[1])
        return {"score": 1 + number / 4}

    model.default("m", by_number)
    path = write(tmp_path, truths=[number % 5 == 0 or number > 20 for number in range(36)])
    lines = reflexion("calibrate", path).stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("threshold  "))
    rows = lines[start + 1 : lines.index("", start)]
    assert 11 <= len(rows) <= 12
    assert sum("balanced" in row for row in rows) == 1


def test_tests_judge_where_there_are_any_and_then_no_model_is_needed(reflexion, tmp_path):
    answers = [("return a + b", True), ("return a - b", False)]
    examples = [
        {
            "task": "Write add(a, b).",
            "answer": f"def add(a, b):\n    {body}",
            "truth": truth,
            "tests": "assert add(1, 1) == 2",
        }
        for body, truth in answers
    ]
    path = tmp_path / "code.jsonl"
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))
    result = result_of(reflexion("calibrate", path, "--base-url", "http://127.0.0.1:9/v1", "--json"))
    assert result["evaluators"] == {"unit_tests": 2}
    assert (result["accuracy"]["count"], result["auc"]) == (2, None)


def test_nothing_is_paid_for_before_the_whole_file_is_read(reflexion, critic, tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text() + '{"task": "t", "answer": "a"}\n')
    done = reflexion("calibrate", path, "--limit", "2")
    assert (done.exit_code, critic.count) == (2, 0)
    assert "line 7: truth missing" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--threshold", "8"], "threshold"),
        (["--budget-tokens", "0"], "budget_tokens"),
        (["--picture", "x.gif"], ".png or .svg"),
        (["--picture", "nowhere/x.png"], "nowhere"),
        (["--out", "nowhere/x.jsonl"], "nowhere"),
        (["--out", "examples.jsonl"], "line 1 is no verdict"),
        (["--prompts", "nowhere"], "nowhere"),
        (["--lang", "fr"], "lang"),
        (["--budget-usd", "1"], "REFLEXION_PRICES"),
    ],
)
def test_wrong_usage_costs_nothing_and_is_one_line(reflexion, critic, tmp_path, options, words):
    done = reflexion("calibrate", write(tmp_path), *options)
    assert (done.exit_code, critic.count) == (2, 0)
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_endpoint_without_a_model_is_wrong_usage(reflexion, server, tmp_path):
    done = reflexion("calibrate", write(tmp_path), "--base-url", server.base_url)
    assert (done.exit_code, server.count) == (2, 0)
    assert "REFLEXION_MODEL" in done.stderr


def test_one_example_that_fails_loses_no_other(reflexion, critic, tmp_path):
    critic.script("m", {"score": 9}, Reply.error(400, "too long", code="context_length_exceeded"))
    done = reflexion("calibrate", write(tmp_path), "--concurrency", "1", "--json")
    result = result_of(done)
    assert (done.exit_code, result["judged"]) == (0, 5)
    assert [(failed["id"], failed["kind"]) for failed in result["failed"]] == [("e1", "context_length")]
    assert "e1: " in done.stderr
    assert "1 of 6 examples were not judged" in result["notes"][0]


def test_no_verdict_is_counted_apart(reflexion, critic, tmp_path):
    critic.script("m", "I can't.", "I can't.")
    result = result_of(reflexion("calibrate", write(tmp_path), "--concurrency", "1", "--json"))
    assert result["no_verdict"]["count"] == 1
    assert result["accuracy"]["of"] == 5


def test_a_wrong_key_ends_it_at_once(reflexion, model, tmp_path):
    model.default("m", Reply.error(401, "no"))
    done = reflexion("calibrate", write(tmp_path), "--concurrency", "1")
    assert (done.exit_code, model.count) == (2, 1)
    assert "nothing was measured" in done.stderr


def test_an_endpoint_that_is_down_is_exit_code_3(reflexion, monkeypatch, tmp_path):
    monkeypatch.setenv("REFLEXION_MAX_RETRIES", "0")
    done = reflexion("calibrate", write(tmp_path), "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    assert done.exit_code == 3
    assert done.stdout == ""


def test_a_budget_ends_it_with_what_it_has_paid_for(reflexion, model, tmp_path):
    model.default("m", Reply({"score": 9}, usage={"prompt_tokens": 800, "completion_tokens": 200}))
    done = reflexion("calibrate", write(tmp_path), "--concurrency", "1", "--budget-tokens", "2000", "--json")
    result = result_of(done)
    assert (done.exit_code, result["stop_reason"], result["judged"], model.count) == (1, "budget", 2, 2)


def test_a_deadline_before_the_first_verdict_is_no_trouble_of_the_endpoint(reflexion, model, tmp_path, monkeypatch):
    monkeypatch.setenv("REFLEXION_DEADLINE_S", "0.001")
    model.default("m", Reply(hang=True))
    done = reflexion("calibrate", write(tmp_path))
    assert done.exit_code == 1
    assert "nothing was measured" in done.stderr


def test_a_budget_holds_with_calls_side_by_side(reflexion, critic, tmp_path):
    done = reflexion("calibrate", write(tmp_path), "--concurrency", "4", "--budget-tokens", "1000", "--json")
    result = result_of(done)
    assert (done.exit_code, result["stop_reason"]) == (1, "budget")
    assert 1 <= result["judged"] < 6
    assert result["usage"]["prompt_tokens"] + result["usage"]["completion_tokens"] <= 1000


def test_a_budget_too_small_for_one_example_is_wrong_usage(reflexion, critic, tmp_path):
    done = reflexion("calibrate", write(tmp_path), "--budget-tokens", "10")
    assert (done.exit_code, critic.count) == (2, 0)
    assert "budget 'calibration' of 10 tokens" in done.stderr


def test_verdicts_in_the_file_are_not_paid_for_again(reflexion, critic, tmp_path):
    path, out = write(tmp_path), tmp_path / "verdicts.jsonl"
    reflexion("calibrate", path, "--out", out, "--limit", "4")
    assert critic.count == 4
    with out.open("a") as file:
        file.write('{"id": "e4", "ke')  # cut off by a crash
    result = result_of(reflexion("calibrate", path, "--out", out, "--json"))
    assert (critic.count, result["reused"], result["judged"]) == (6, 4, 6)
    assert result["usage"]["requests"] == 2
    assert {json.loads(line)["id"] for line in out.read_text().splitlines()} == {f"e{number}" for number in range(6)}


def test_a_label_or_threshold_that_changes_costs_nothing(reflexion, critic, tmp_path):
    out = tmp_path / "verdicts.jsonl"
    reflexion("calibrate", write(tmp_path), "--out", out)
    path = write(tmp_path)
    path.write_text(path.read_text().replace('"wrong 1", "truth": false', '"wrong 1", "truth": true'))
    result = result_of(reflexion("calibrate", path, "--out", out, "--threshold", "0.95", "--json"))
    assert critic.count == 6
    assert (result["false_passes"]["of"], result["false_failures"]["count"]) == (2, 4)


@pytest.mark.parametrize("change", ["answer", "model", "prompt"])
def test_another_answer_model_or_prompt_is_judged_anew(reflexion, critic, tmp_path, change):
    critic.default("other", judge)
    out = tmp_path / "verdicts.jsonl"
    path = write(tmp_path)
    reflexion("calibrate", path, "--out", out)
    options = []
    if change == "answer":
        path.write_text(path.read_text().replace("right 0", "right 00"))
    elif change == "model":
        options = ["--model", "other"]
    else:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "critic.md").write_text("# user\nJudge in JSON: {{task}} {{answer}}")
        options = ["--prompts", tmp_path / "mine"]
    reflexion("calibrate", path, "--out", out, *options)
    assert critic.count == 6 + (1 if change == "answer" else 6)


def test_an_interrupt_reports_what_is_finished(server, tmp_path):
    server.script("m", {"score": 9}, {"score": 3}, Reply(hang=True))
    path, out = write(tmp_path), tmp_path / "verdicts.jsonl"
    environment = os.environ | {"REFLEXION_BASE_URL": server.base_url, "REFLEXION_MODEL": "m"}
    command = [sys.executable, "-m", "reflexion.cli", "calibrate", str(path), "--concurrency", "1", "--json"]
    command += ["--database", f"sqlite:///{tmp_path}/db.sqlite", "--out", str(out)]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    server.wait_for("m", 3, timeout_s=100)
    process.send_signal(signal.SIGINT)
    stdout, error = process.communicate(timeout=100)
    assert process.returncode == 130, error
    result = json.loads(stdout)
    assert (result["stop_reason"], result["judged"], result["usage"]["requests"]) == ("cancelled", 2, 3)
    assert len(out.read_text().splitlines()) == 2
