"""Whatever is wrong with tracing, a run does not notice, and its process ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from loop_bench import Bench

from reflexion.testing import FakeLangSmith, FakeOpenAI, Reply

WARNING = "traces do not reach LangSmith"


def run_traced(server: FakeOpenAI, environment: dict[str, str], *how: str) -> subprocess.CompletedProcess[str]:
    Bench(server, "memory://")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH_", "LANGCHAIN_"))}
    script = str(Path(__file__).with_name("traced_run.py"))
    done = subprocess.run(
        [sys.executable, script, server.base_url, *how],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "max_attempts 0.4 6\n" * 2), done.stderr
    assert server.count == 12
    assert "Traceback" not in done.stderr
    return done


def test_without_trouble_nothing_is_lost_at_the_end_of_the_process(server):
    with FakeLangSmith() as traces:
        done = run_traced(server, traces.environment(), "patient")
    assert done.stderr == ""
    assert [name for name, _ in traces.tree()] == ["reflexion", "reflexion"]
    assert [run.name for run in traces.runs if run.pending] == []
    assert len(traces.feedback) == 8


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(status=403),
        Reply(status=429, headers={"Retry-After": "60"}),
        Reply(status=500),
        Reply(status=404),
        Reply(hang=True),
        Reply(drop=True),
    ],
    ids=["403", "429", "500", "404", "hang", "drop"],
)
def test_trouble_is_one_warning(server, trouble):
    with FakeLangSmith() as traces:
        traces.misbehave(trouble)
        done = run_traced(server, traces.environment())
        assert traces.requests
    assert done.stderr.count(WARNING) == 1
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_port_is_one_warning(server, closed_port):
    environment = FakeLangSmith(port=closed_port).environment()
    done = run_traced(server, environment)
    assert done.stderr.count(WARNING) == 1
    assert len(done.stderr.splitlines()) == 1


def test_tracing_without_a_key_is_one_warning_and_no_request(server):
    done = run_traced(server, {"LANGSMITH_TRACING": "true"})
    assert "set LANGSMITH_API_KEY" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_variables_that_langsmith_cannot_use_are_one_warning(server):
    with FakeLangSmith() as traces:
        done = run_traced(server, traces.environment() | {"LANGSMITH_TRACING_SAMPLING_RATE": "7"})
    assert "LANGSMITH_TRACING_SAMPLING_RATE" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_langsmith_without_multipart_is_asked_in_its_own_way(server):
    with FakeLangSmith(multipart=False) as traces:
        run_traced(server, traces.environment(), "patient")
    assert {request.path for request in traces.requests} >= {"/runs/batch"}
    assert [name for name, _ in traces.tree()] == ["reflexion", "reflexion"]
