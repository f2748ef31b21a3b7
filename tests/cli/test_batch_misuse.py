"""`reflexion batch` with what cannot be used: one line that says what to do, exit code 2, and nothing is paid for."""

import gzip
import importlib.util
import json

import pytest

TASK = json.dumps({"task": "2 + 2?", "expect": "4"}).encode() + b"\n"


def refused(done, server, *words):
    assert (done.exit_code, done.stdout, server.count) == (2, "", 0)
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr
    return done


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no tasks"),
        (b"\n \n", "holds no tasks"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is no text"),
        (gzip.compress(TASK), "gunzip"),
        (b"PK\x03\x04...", "unzip"),
        (TASK.decode().encode("utf-16"), "is UTF-16"),
        (b'[{"task": "2 + 2?"}]', "JSON array"),
    ],
    ids=["empty", "blank", "picture", "gzip", "zip", "utf-16", "array"],
)
def test_a_file_that_is_none_of_tasks(reflexion, model, tmp_path, data, words):
    (tmp_path / "in.jsonl").write_bytes(data)
    refused(reflexion("batch", "in.jsonl", "--out", "out.jsonl"), model, "in.jsonl", words)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(("name", "words"), [("nowhere.jsonl", "no such file"), (".", "is a folder")])
def test_what_is_no_file(reflexion, model, name, words):
    refused(reflexion("batch", name, "--out", "out.jsonl"), model, words)


def test_nothing_on_stdin(reflexion, model):
    done = reflexion("batch", "-", "--out", "out.jsonl", stdin="")
    assert (done.exit_code, model.count) == (2, 0)
    assert "holds no tasks" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "in.jsonl"], "is the file of the tasks"),
        (["--out", "."], "is a folder"),
        (["--out", "nowhere/out.jsonl"], "there is no folder"),
        (["--out", "other.jsonl"], "is not of a batch"),
        (["--concurrency", "0"], "--concurrency 0"),
        (["--budget-usd", "-1"], "--budget-usd -1"),
        (["--budget-usd", "much"], "--budget-usd 'much'"),
        (["--budget-tokens", "-5"], "--budget-tokens -5"),
        (["--max-time", "0"], "--max-time 0"),
        (["--budget-usd", "1"], "REFLEXION_PRICES"),
        (["--threshold", "8"], "threshold"),
        (["--max-attempts", "0"], "max_attempts"),
        (["--database", "oracle://x"], "oracle"),
        (["--prompts", "nowhere"], "nowhere"),
        (["--experiment", "e"], "--dataset"),
        (["--dataset", "d"], "either a file"),
        (["--summary"], "--out alone"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_options_that_cannot_be_used(reflexion, model, tmp_path, options, words):
    (tmp_path / "in.jsonl").write_bytes(TASK)
    (tmp_path / "other.jsonl").write_text("mine\n")
    out = [] if "--out" in options else ["--out", "out.jsonl"]
    refused(reflexion("batch", "in.jsonl", *out, *options), model, words)
    assert (tmp_path / "other.jsonl").read_text() == "mine\n"
    assert (tmp_path / "in.jsonl").read_bytes() == TASK
    assert not list(tmp_path.glob("other.jsonl.*"))


def test_no_tasks_at_all(reflexion, model):
    refused(reflexion("batch", "--out", "out.jsonl"), model, "either a file")


def test_a_dataset_without_a_key(reflexion, model):
    refused(reflexion("batch", "--dataset", "d", "--out", "out.jsonl"), model, "LANGSMITH_API_KEY")


def test_temporal_without_its_extra(reflexion, model, tmp_path, monkeypatch):
    (tmp_path / "in.jsonl").write_bytes(TASK)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "temporalio" else found(name, *a))
    refused(reflexion("batch", "in.jsonl", "--out", "out.jsonl", "--engine", "temporal"), model, "extra temporal")


@pytest.mark.parametrize(
    ("text", "words"), [(None, "no such file"), ("mine\n", "record 1 is none of a batch")], ids=["missing", "other"]
)
def test_a_summary_of_what_is_no_batch(reflexion, model, tmp_path, text, words):
    if text:
        (tmp_path / "out.jsonl").write_text(text)
    refused(reflexion("batch", "--summary", "--out", "out.jsonl"), model, words)
