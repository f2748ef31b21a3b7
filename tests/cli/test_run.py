"""What `reflexion run` prints, and how it ends."""

import json

from reflexion.testing import Reply


def test_a_task_that_fails_once_and_passes_after_reflecting(reflexion, model):
    model.script(
        "m", "17 * 23 = 401\nAnswer: 401", '{"improvement": "Multiply the tens first."}', "1. Multiply.", "Answer: 391"
    )
    done = reflexion("run", "What is 17 * 23?", "--expect", "num:391")
    assert done.exit_code == 0
    assert done.stdout.startswith("Answer: 391\n")
    assert "stopped: passed" in done.stdout
    assert "Multiply the tens first." in done.stdout


def test_json_is_one_object_and_nothing_else(reflexion, model):
    model.default("m", "Answer: 391")
    done = reflexion("run", "What is 17 * 23?", "--expect", "391", "--json")
    result = json.loads(done.stdout)
    assert result["passed"] is True
    assert result["answer"] == "Answer: 391"
    assert result["stop_reason"] == "passed"
    assert result["attempts"][0]["score"] == 1.0
    assert result["usage"]["cost_usd"] is None
    assert result["usage"]["by_role"]["actor"]["requests"] == 1
    assert set(result["latency_ms"]) == {"p50", "p95", "p99"}


def test_quiet_prints_the_answer_and_nothing_else(reflexion, model):
    model.default("m", "Paris")
    done = reflexion("run", "Capital of France?", "--expect", "Paris", "--quiet")
    assert (done.stdout, done.stderr) == ("Paris\n", "")


def test_a_task_may_come_from_stdin(reflexion, model):
    model.default("m", "Paris")
    done = reflexion("run", "-", "--expect", "paris", stdin="Capital of France?")
    assert done.exit_code == 0
    assert "Capital of France?" in model.requests[0].raw.decode()


def test_code_is_judged_by_its_tests(reflexion, model, tmp_path):
    model.script(
        "m", "```python\ndef add(a, b):\n    return a - b\n```", '{"improvement": "Add, do not subtract."}', "Add."
    )
    model.default("m", "```python\ndef add(a, b):\n    return a + b\n```")
    tests = tmp_path / "tests.py"
    tests.write_text("assert add(1, 2) == 3\nassert add(0, 0) == 0\n")
    done = reflexion("run", "Write add(a, b).", "--tests", tests, "--threshold", "1", "--json")
    result = json.loads(done.stdout)
    assert [attempt["score"] for attempt in result["attempts"]] == [0.5, 1.0]
    assert "add(1, 2)" in result["attempts"][0]["feedback"]
    assert done.exit_code == 0


def test_a_second_run_on_another_thread_recalls_the_lesson(reflexion, model):
    lesson = "Multiply the tens first and add the ones."
    model.script("m", "Answer: 401", json.dumps({"improvement": lesson}), "1. Multiply.", "Answer: 391")
    reflexion("run", "What is 17 * 23?", "--expect", "num:391", "--thread", "one")
    model.script("m", "Answer: 391")
    before = model.count
    done = reflexion("run", "What is 17 * 23?", "--expect", "num:391", "--thread", "two", "--json")
    assert [used["text"] for used in json.loads(done.stdout)["lessons_used"]] == [lesson]
    assert model.requests[before].raw.decode().count(lesson) == 1


def test_not_passing_is_exit_code_1(reflexion, model):
    model.default("m", "Answer: 1")
    done = reflexion("run", "What is 17 * 23?", "--expect", "num:391", "--max-attempts", "1")
    assert done.exit_code == 1
    assert "stopped: max_attempts" in done.stdout


def test_no_verdict_shows_and_is_exit_code_1(reflexion, model):
    model.default("m", "I can't evaluate that.")
    done = reflexion("run", "Write a haiku.")
    assert done.exit_code == 1
    assert "stopped: evaluator_failed" in done.stdout
    assert done.stdout.startswith("I can't evaluate that.")


def test_an_endpoint_that_is_down_is_exit_code_3(reflexion, monkeypatch):
    monkeypatch.setenv("REFLEXION_MAX_RETRIES", "0")
    done = reflexion("run", "Hello", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--expect", "x")
    assert done.exit_code == 3
    assert done.stdout == ""
    assert "no connection to http://127.0.0.1:9/v1" in done.stderr


def test_german_prompts(reflexion, model):
    model.default("m", "Paris")
    reflexion("run", "Hauptstadt von Frankreich?", "--expect", "Paris", "--lang", "de")
    assert "sorgfältiger Fachmann" in model.requests[0].body["messages"][0]["content"]


def test_a_prompt_folder_of_the_users_own_goes_first(reflexion, model, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "actor.md").write_text("# user\nDo this: {{task}}")
    model.default("m", "Paris")
    reflexion("run", "Capital?", "--expect", "Paris", "--prompts", tmp_path / "mine")
    assert [message["content"] for message in model.requests[0].body["messages"]] == ["Do this: Capital?"]


def test_a_token_budget_ends_the_run_before_it_is_overspent(reflexion, model):
    model.default("m", "Answer: 1")
    done = reflexion("run", "What is 17 * 23?", "--expect", "num:391", "--budget-tokens", "300", "--json")
    result = json.loads(done.stdout)
    assert result["stop_reason"] == "budget"
    assert result["answer"] == "Answer: 1"
    assert result["usage"]["prompt_tokens"] + result["usage"]["completion_tokens"] <= 300


def test_a_fallback_answers_where_the_model_cannot(reflexion, model):
    model.default("m", Reply.error(400, "too long", code="context_length_exceeded"))
    model.default("spare", "Paris")
    done = reflexion("run", "Capital of France?", "--expect", "Paris", "--fallback", "spare", "--json")
    result = json.loads(done.stdout)
    assert result["passed"] is True
    assert set(result["usage"]["by_model"]) == {"m", "spare"}


def test_the_summary_prices_the_run_on_other_models(reflexion, model):
    model.default("m", Reply("Paris", usage={"prompt_tokens": 1_000_000, "completion_tokens": 100_000}))
    done = reflexion("run", "Capital of France?", "--expect", "Paris")
    assert "gpt-4.1 $10.4000" in done.stdout
    assert "latency in ms" in done.stdout


def test_a_profile_without_its_key_is_one_clear_line(reflexion, monkeypatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    done = reflexion("run", "Hello", "--model", "profile:deepseek-v3.2", "--expect", "x")
    assert done.exit_code == 2
    assert "DEEPSEEK_API_KEY" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
