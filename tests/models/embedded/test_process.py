import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from reflexion.models.embedded import LocalServer, shutdown_server
from reflexion.models.embedded.process import command, is_ours, running
from reflexion.models.embedded.serve import ServerFolder, ServerState, thread_count
from reflexion.models.embedded.server import _servers

HOLDER = """
import sys
from pathlib import Path
from reflexion.models.embedded.serve import ServerFolder
ServerFolder(Path(sys.argv[1])).take_lease()
print("held", flush=True)
sys.stdin.read()
"""

WRITER = """
import os
from reflexion.models.embedded import serve
os.write(2, b"x" * (serve.LOG_LIMIT_BYTES + 1))
serve._bound_log()
os.write(2, b"short, ")
serve._bound_log()
os.write(2, b"long emptied")
"""


@pytest.fixture
def folder(tmp_path) -> ServerFolder:
    folder = ServerFolder(_servers(tmp_path) / "tiny")
    folder.create()
    return folder


@pytest.fixture
def sleeper():
    """A foreign process."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.stdin.close()
    process.wait(timeout=30)


@contextmanager
def looks_like_a_server_of(folder: ServerFolder) -> Iterator[subprocess.Popen[str]]:
    arguments = command(folder, Path("weights.gguf"), "tiny", 300.0)
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        # For a moment after exec the system shows no arguments.
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.communicate(timeout=30)


def state(pid: int) -> ServerState:
    return ServerState(url="http://127.0.0.1:9", pid=pid, api_key="secret", model="tiny", started=1.0)


def test_the_state_is_for_this_user_only(folder):
    folder.write_state(state(7))
    assert folder.read_state() == state(7)
    (file,) = folder.path.glob("state*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "http://127.0.0.1:9"}', '{"other": 1}'])
def test_a_state_that_cannot_be_read_is_none(folder, text):
    folder.write_state(state(7))
    (file,) = folder.path.glob("state*")
    file.write_text(text)
    assert folder.read_state() is None


def test_a_key_is_not_shown():
    assert "secret" not in repr(state(7))
    assert "secret" not in repr(LocalServer(base_url="http://127.0.0.1:9/v1", api_key="secret", model="tiny"))


def test_the_log_is_emptied_when_it_grows_too_long(tmp_path):
    log = tmp_path / "server.log"
    with log.open("ab") as file:
        subprocess.run([sys.executable, "-c", WRITER], stderr=file, check=True)
    assert log.read_text() == "short, long emptied"


def test_clients_share_the_lease_and_the_server_waits_for_the_last(folder):
    first, second = folder.take_lease(), folder.take_lease()
    assert folder.take_lease_alone() is None
    os.close(first)
    assert folder.take_lease_alone() is None
    os.close(second)
    alone = folder.take_lease_alone()
    assert alone is not None
    os.close(alone)


def test_the_lease_dies_with_a_killed_client(folder):
    client = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout.readline() == "held\n"
    assert folder.take_lease_alone() is None
    client.send_signal(signal.SIGKILL)
    client.communicate(timeout=30)
    alone = folder.take_lease_alone()
    assert alone is not None
    os.close(alone)


def test_only_the_command_of_this_very_folder_is_ours(folder):
    other = ServerFolder(Path(f"{folder.path}-2"))
    with looks_like_a_server_of(folder) as ours, looks_like_a_server_of(other) as others:
        assert is_ours(folder, ours.pid)
        assert not is_ours(folder, others.pid)
    assert not is_ours(folder, ours.pid)


def test_a_server_runs_while_it_listens_even_when_it_has_no_time_to_accept(folder, sleeper, monkeypatch):
    monkeypatch.setattr("reflexion.models.embedded.process._CONNECT_TIMEOUT_S", 0.2)
    assert running(folder) is None
    with looks_like_a_server_of(folder) as process, ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        recorded = replace(state(process.pid), url=f"http://127.0.0.1:{address[1]}")
        folder.write_state(recorded)
        assert running(folder) == recorded
        with suppress(TimeoutError):
            while True:
                stack.enter_context(socket.create_connection(address, timeout=0.2))
        assert running(folder) == recorded

        folder.write_state(replace(recorded, pid=sleeper.pid))
        assert running(folder) is None
        folder.write_state(recorded)
        listener.close()
        assert running(folder) is None


def test_shutdown_leaves_a_foreign_process_alone(folder, sleeper, tmp_path):
    folder.write_state(state(sleeper.pid))
    assert shutdown_server(tmp_path) == 0
    assert sleeper.poll() is None
    assert folder.read_state() is None


def test_shutdown_without_any_server_ends_nothing(tmp_path):
    assert shutdown_server(tmp_path / "nothing") == 0


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (3, 2), (8, 7)])
def test_one_core_stays_free_where_there_are_more_than_two(cores, threads):
    assert thread_count(cores) == threads
