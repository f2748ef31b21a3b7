"""The command as a process of its own: interrupted, killed, and run again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from reflexion.testing import FakeOpenAI

LESSON = json.dumps({"improvement": "Multiply the tens first and add the ones."})


def start(server: FakeOpenAI, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"REFLEXION_BASE_URL": server.base_url, "REFLEXION_MODEL": "m"}
    command = [sys.executable, "-m", "reflexion.cli", "run", *arguments, "--database", f"sqlite:///{folder}/db.sqlite"]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_an_interrupt_ends_the_run_with_its_best_attempt(server, tmp_path, monkeypatch):
    monkeypatch.setenv("REFLEXION_PLANNER_MODEL", "planner-m")
    server.script("m", "Answer: 401", LESSON)
    server.hold("planner-m")
    process = start(server, tmp_path, "What is 17 * 23?", "--expect", "num:391", "--json")
    server.wait_for("planner-m", 1, timeout_s=100)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=100)
    result = json.loads(out)
    assert process.returncode == 130
    assert result["stop_reason"] == "cancelled"
    assert result["answer"] == "Answer: 401"
    assert server.count == 3


def test_a_killed_run_goes_on_where_it_was(server, tmp_path):
    server.script("m", "Answer: 401", LESSON)
    server.default("m", "Answer: 391")
    server.hold("m")
    arguments = ["What is 17 * 23?", "--expect", "num:391", "--thread", "t", "--json"]
    process = start(server, tmp_path, *arguments)
    server.wait_for("m", timeout_s=100)
    process.kill()
    process.communicate(timeout=100)
    server.release("m")
    again = start(server, tmp_path, *arguments)
    out, error = again.communicate(timeout=100)
    assert again.returncode == 0, error
    assert json.loads(out)["passed"] is True
    assert server.count == 1 + 4  # the call in flight, and actor, reflector, planner, actor


def test_a_busy_thread_is_said_in_one_line(server, tmp_path):
    server.default("m", "Answer: 391")
    server.hold("m")
    arguments = ["What is 17 * 23?", "--expect", "num:391", "--thread", "t", "--json"]
    first = start(server, tmp_path, *arguments)
    server.wait_for("m", timeout_s=100)
    second = start(server, tmp_path, *arguments)
    _, error = second.communicate(timeout=100)
    assert second.returncode == 2
    assert "busy" in error
    assert len(error.strip().splitlines()) == 1
    server.release("m")
    out, _ = first.communicate(timeout=100)
    assert json.loads(out)["passed"] is True
    assert server.count == 1


def test_a_terminal_that_knows_no_umlauts_costs_no_answer(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    server.default("m", "Köln – schön")
    process = start(server, tmp_path, "Where?", "--expect", "Köln – schön")
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    assert "sch\\xf6n" in out
