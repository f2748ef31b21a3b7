"""Whatever cannot be worked on is said in one line, before anything has been paid for."""

from pathlib import Path

import pytest

ENDPOINT = ["--base-url", "http://127.0.0.1:9/v1", "--model", "m"]

BAD = {
    "missing test file": ([*ENDPOINT, "--tests", "none.py"], "none.py"),
    "tests that do not parse": ([*ENDPOINT, "--tests", "broken.py"], "line 1"),
    "tests without a test": ([*ENDPOINT, "--tests", "testless.py"], "no test"),
    "empty test file": ([*ENDPOINT, "--tests", "empty.py"], "is empty"),
    "threshold on another scale": ([*ENDPOINT, "--threshold", "8"], "7 of 10 is 0.7"),
    "no attempts": ([*ENDPOINT, "--max-attempts", "0"], "max_attempts"),
    "base URL without a path": (["--base-url", "http://127.0.0.1:9", "--model", "m"], "http://127.0.0.1:9/v1"),
    "base URL of no kind": (["--base-url", "localhost:9", "--model", "m"], "localhost:9"),
    "endpoint without a model": (["--base-url", "http://127.0.0.1:9/v1"], "REFLEXION_MODEL"),
    "model without an endpoint": (["--model", "gpt-4.1"], "REFLEXION_BASE_URL"),
    "model file that is missing": (["--model", "missing.gguf"], "missing.gguf"),
    "database that is none": ([*ENDPOINT, "--database", "sqlite:///garbage.sqlite"], "garbage.sqlite"),
    "database that is a folder": ([*ENDPOINT, "--database", "sqlite:///folder"], "folder"),
    "unknown database": ([*ENDPOINT, "--database", "mysql://x"], "mysql"),
    "tests and an expected text": ([*ENDPOINT, "--tests", "good.py", "--expect", "Paris"], "both"),
    "no regular expression": ([*ENDPOINT, "--expect", "re:("], "regular expression"),
    "no number": ([*ENDPOINT, "--expect", "num:many"], "num"),
    "no schema": ([*ENDPOINT, "--expect", 'json:{"type": 3}'], "schema"),
    "unknown language": ([*ENDPOINT, "--lang", "fr"], "lang"),
    "unknown style": ([*ENDPOINT, "--attempt-style", "bold"], "attempt_style"),
    "dollars without a price": ([*ENDPOINT, "--budget-usd", "1"], "REFLEXION_PRICES"),
    "no budget": ([*ENDPOINT, "--budget-usd", "0"], "budget_usd"),
    "empty thread": ([*ENDPOINT, "--thread", ""], "thread"),
    "empty criterion": ([*ENDPOINT, "--criteria", " "], "criteria"),
    "endless wait": ([*ENDPOINT, "--wait", "inf"], "wait"),
    "endless deadline": ([*ENDPOINT, "--deadline", "inf"], "deadline_s"),
    "missing prompt folder": ([*ENDPOINT, "--prompts", "nowhere"], "nowhere"),
    "prompt that is blind": ([*ENDPOINT, "--prompts", "blind"], "{{task}}"),
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("assert f(1) == 1\n")
    (tmp_path / "broken.py").write_text("assert f(1) ==\n")
    (tmp_path / "testless.py").write_text("x = 1\n")
    (tmp_path / "empty.py").write_text("\n")
    (tmp_path / "garbage.sqlite").write_bytes(b"this is no database" * 100)
    (tmp_path / "folder").mkdir()
    (tmp_path / "blind").mkdir()
    (tmp_path / "blind" / "actor.md").write_text("# user\nDo something.\n")


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line_and_exit_code_2(reflexion, name):
    arguments, named = BAD[name]
    done = reflexion("run", "Write f.", *arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert named in done.stderr


def test_no_task_at_all(reflexion):
    done = reflexion("run", *ENDPOINT)
    assert done.exit_code == 2
    assert "no task" in done.stderr


def test_nothing_to_go_on_with(reflexion):
    done = reflexion("run", *ENDPOINT, "--thread", "new")
    assert done.exit_code == 2
    assert "nothing unfinished" in done.stderr


@pytest.mark.parametrize(
    "name", ["REFLEXION_THRESHOLD", "REFLEXION_BASE_URL", "REFLEXION_PRICES", "REFLEXION_REDIS_URL"]
)
def test_bad_environment_is_one_clear_line(reflexion, monkeypatch, name):
    monkeypatch.setenv(name, "nonsense")
    done = reflexion("run", "Write f.", "--model", "m")
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert name.removeprefix("REFLEXION_").lower() in done.stderr.lower().replace("base url", "base_url")


def test_an_unknown_model_is_a_wrong_setting(reflexion, server):
    done = reflexion("run", "Write f.", "--base-url", server.base_url, "--model", "nobody", "--expect", "x")
    assert done.exit_code == 2
    assert server.count == 1
    assert "nobody" in done.output


def test_a_wrong_key_is_a_wrong_setting(reflexion, monkeypatch):
    from reflexion.testing import FakeOpenAI

    monkeypatch.setenv("REFLEXION_API_KEY", "sk-wrong-1234567890")
    with FakeOpenAI(api_key="right") as server:
        done = reflexion("run", "Write f.", "--base-url", server.base_url, "--model", "m", "--expect", "x")
        assert done.exit_code == 2
        assert server.count == 1
    assert "sk-wrong" not in done.output
