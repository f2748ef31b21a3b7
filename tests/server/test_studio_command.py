"""`reflexion studio`: from any folder, quiet, and gone without a trace."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from dev_server import Cast, clean_environment, end, free_port
from langgraph_sdk import get_client
from typer.testing import CliRunner

from reflexion.cli.app import app
from reflexion.graphs import open_reflexion
from reflexion.testing import FakeOpenAI


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of a user with no settings."""
    for name in os.environ:
        if name.startswith("REFLEXION_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "anywhere"
    folder.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def studio(folder: Path):
    """Starts the command; what is left of it is ended."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "reflexion.cli", "studio", *arguments],
            cwd=folder,
            env=clean_environment()
            | {"XDG_DATA_HOME": os.environ["XDG_DATA_HOME"], "TMPDIR": str(folder.parent / "tmp")},
            stdout=subprocess.PIPE,
            stderr=(folder.parent / "errors").open("w"),
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        end(process)
        process.stdout.close()


def addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    """What it prints once it answers."""
    lines = [process.stdout.readline() for _ in range(4)]
    return dict(line.split(maxsplit=1) for line in map(str.strip, lines[:3]))


def group_is_empty(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return True
    return False


async def test_it_serves_the_graph_from_any_folder_and_leaves_nothing_there(folder, studio):
    with FakeOpenAI() as endpoint:
        cast = Cast.new(endpoint)
        cast.plays_two_attempts()
        (folder / "own").mkdir()
        (folder / "own" / "planner.md").write_text("# system\nPlan in one line.\n# user\n{{task}} {{lesson}}")
        (folder / ".env").write_text(
            f"REFLEXION_BASE_URL={endpoint.base_url}\nREFLEXION_DATABASE_URL=sqlite:///runs.sqlite\n"
            "REFLEXION_PROMPTS=own\nREFLEXION_MAX_ATTEMPTS=2\nREFLEXION_MODEL=m\n"
        )
        async with open_reflexion(
            database_url="sqlite:///runs.sqlite", actor=lambda given: "done", evaluator=lambda answer: 1.0
        ) as agent:
            earlier = (await agent.run("Say done.")).thread_id
            await agent.run("Say done.", thread="named")
        process = studio()
        printed = addresses(process)
        assert printed["Studio"] == f"https://smith.langchain.com/studio/?baseUrl={printed['API']}"
        async with get_client(url=printed["API"]) as client:
            assert "reflexion" in [assistant["graph_id"] for assistant in await client.assistants.search()]
            assert [thread["thread_id"] for thread in await client.threads.search()] == [earlier]
            assert (await client.threads.get_state(earlier))["values"]["answer"] == "done"
            result = await client.runs.wait(None, "reflexion", input={"task": "Sum a list."}, context=cast.context)
        assert (result["passed"], len(result["attempts"])) == (True, 2)
        assert cast.requests("planner")[0].startswith("Plan in one line.")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert process.stdout.read() == ""
    assert (folder.parent / "errors").read_text() == ""
    assert {path.name for path in folder.iterdir()} == {".env", "own", "runs.sqlite", "runs.sqlite.locks"}
    assert list((folder.parent / "tmp").iterdir()) == []
    assert group_is_empty(process.pid)


def test_it_ends_cleanly_when_it_is_told_to(folder, studio):
    port = free_port()
    process = studio("--port", str(port))
    assert addresses(process)["API"] == f"http://127.0.0.1:{port}"
    process.terminate()
    assert process.wait(timeout=60) == 130
    assert list(folder.iterdir()) == []
    assert list((folder.parent / "tmp").iterdir()) == []
    assert group_is_empty(process.pid)


def refused(*arguments: str) -> str:
    """The one line of a command that will not start."""
    done = CliRunner().invoke(app, ["studio", *arguments])
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


@pytest.mark.usefixtures("folder")
def test_what_keeps_it_from_starting_is_one_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"--port {port}" in refused("--port", port)
    assert "mysql" in refused("--database", "mysql://x")
    monkeypatch.setenv("REFLEXION_PROMPTS", "nowhere")
    assert "nowhere" in refused()
    monkeypatch.setenv("REFLEXION_THRESHOLD", "7")
    assert "threshold" in refused()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "reflexion-graph[studio]" in refused()
