"""The real server with the real 0.5B model, and what is said when it cannot run."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from blockbuster import blockbuster_ctx
from langchain_openai import ChatOpenAI

from reflexion.models.embedded import (
    EmbeddedModel,
    EmbeddedModelError,
    LocalServer,
    installed_model,
    is_installed,
    shutdown_server,
)
from reflexion.models.embedded.process import is_ours
from reflexion.models.embedded.serve import ServerFolder
from reflexion.models.embedded.server import _servers
from reflexion.models.embedded.weights import QWEN_0_5B, is_present

MODEL = QWEN_0_5B.name
runtime = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="llama.cpp is not installed (extra: local)")
real = pytest.mark.skipif(
    find_spec("xllamacpp") is None or not is_present(QWEN_0_5B, Path("no cache")),
    reason=f"{MODEL} is not installed (extra: local)",
)
# Bounds of things that take seconds on an idle machine and may take minutes on a busy one.
PATIENCE_S = 100.0

CLIENT = """
import asyncio, sys
from pathlib import Path
from reflexion.models.embedded import EmbeddedModel
server = asyncio.run(EmbeddedModel(sys.argv[1], cache=Path(sys.argv[2]), idle_s=float(sys.argv[3])).start())
print(server.base_url, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache that the tests of this file share: joining half a gigabyte takes seconds."""
    path = tmp_path_factory.mktemp("cache")
    yield path
    shutdown_server(path)
    shutil.rmtree(path)


@pytest.fixture
def fresh(cache):
    """The shared cache without a server."""
    shutdown_server(cache)
    yield cache
    shutdown_server(cache)


def pid_of(cache: Path) -> int:
    state = folder_of(cache).read_state()
    assert state is not None
    return state.pid


def folder_of(cache: Path) -> ServerFolder:
    return ServerFolder(_servers(cache) / MODEL)


def client(cache: Path, idle_s: float = 300.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, MODEL, str(cache), str(idle_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end_client(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=PATIENCE_S)


async def until_ended(cache: Path, pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while is_ours(folder_of(cache), pid):
        assert time.monotonic() < deadline, "the server goes on"
        await asyncio.sleep(0.1)


def chat(server: LocalServer, max_tokens: int = 60) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=server.base_url,
        api_key=server.api_key,
        model=server.model,
        temperature=0,
        max_completion_tokens=max_tokens,
        stream_usage=True,
    )


async def post(server: LocalServer, body: dict[str, object], key: str | None = None) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        return await http.post(
            f"{server.base_url}/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {key or server.api_key}"},
        )


def asks(text: str, **options: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **options}


@real
async def test_a_server_starts_answers_and_ends(fresh):
    model = EmbeddedModel(MODEL, cache=fresh)
    with blockbuster_ctx():
        server = await model.start()
        again = await asyncio.gather(*(model.start() for _ in range(5)))
    assert again == [server] * 5
    assert server.base_url.startswith("http://127.0.0.1:")
    assert server.base_url.endswith("/v1")
    assert server.model == MODEL

    reply = await chat(server, 8).ainvoke("Say hello.")
    assert reply.content
    assert 0 < reply.usage_metadata["output_tokens"] <= 8
    assert (await post(server, asks("Say hello."), key="guessed")).status_code == 401

    await model.stop()
    pid = pid_of(fresh)
    assert shutdown_server(fresh) == 1
    assert not is_ours(folder_of(fresh), pid)
    assert shutdown_server(fresh) == 0


@real
@pytest.mark.slow
def test_two_processes_share_one_server(fresh):
    clients = [client(fresh), client(fresh)]
    urls = {process.stdout.readline() for process in clients}
    pid = pid_of(fresh)
    for process in clients:
        end_client(process)
    assert len(urls) == 1
    assert urls != {""}
    assert is_ours(folder_of(fresh), pid), "the server outlives its clients"


@real
@pytest.mark.slow
async def test_a_killed_server_is_started_again(fresh):
    model = EmbeddedModel(MODEL, cache=fresh)
    first = await model.start()
    pid = pid_of(fresh)
    os.kill(pid, signal.SIGKILL)
    await until_ended(fresh, pid)
    second = await model.start()
    assert pid_of(fresh) != pid
    assert second != first
    assert (await chat(second, 4).ainvoke("Say hello.")).content
    await model.stop()


@real
@pytest.mark.slow
async def test_a_server_that_nobody_uses_ends_itself_and_one_in_use_does_not(fresh):
    model = EmbeddedModel(MODEL, cache=fresh, idle_s=1)
    await model.start()
    pid = pid_of(fresh)
    await asyncio.sleep(5)
    assert is_ours(folder_of(fresh), pid), "the lease is held"
    await model.stop()
    await until_ended(fresh, pid)
    assert folder_of(fresh).read_state() is None
    await model.start()
    assert pid_of(fresh) != pid
    await model.stop()


@real
@pytest.mark.slow
async def test_the_server_ends_when_its_only_client_was_killed(fresh):
    process = client(fresh, idle_s=1)
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    pid = pid_of(fresh)
    process.kill()
    end_client(process)
    await until_ended(fresh, pid)


@real
@pytest.mark.slow
async def test_a_running_request_keeps_the_server_without_a_lease(fresh):
    model = EmbeddedModel(MODEL, cache=fresh, idle_s=1)
    server = await model.start()
    pid = pid_of(fresh)
    await model.stop()
    # Longer than idle_s on anything but a very fast machine.
    reply = await post(server, asks("Tell me the history of Rome, at length.", max_tokens=300, ignore_eos=True))
    assert reply.json()["usage"]["completion_tokens"] == 300
    await until_ended(fresh, pid)


@real
@pytest.mark.slow
async def test_a_server_that_is_too_busy_to_answer_is_kept(fresh, monkeypatch):
    monkeypatch.setattr("reflexion.models.embedded.process._END_TIMEOUT_S", 2.0)
    model = EmbeddedModel(MODEL, cache=fresh)
    server = await model.start()
    pid = pid_of(fresh)
    os.kill(pid, signal.SIGSTOP)
    assert await model.start() == server
    assert pid_of(fresh) == pid
    await model.stop()
    assert shutdown_server(fresh) == 1, "a stopped process ignores SIGTERM, not SIGKILL"
    assert not is_ours(folder_of(fresh), pid)


@real
@pytest.mark.slow
async def test_what_chat_clients_need_works(fresh):
    model = EmbeddedModel(MODEL, cache=fresh)
    server = await model.start()

    chunks = [chunk async for chunk in chat(server, 20).astream("Write a poem about rain.")]
    usage = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert len(chunks) > 5
    assert [counts["output_tokens"] for counts in usage] == [20]

    for name in ("max_tokens", "max_completion_tokens"):
        reply = (await post(server, asks("Count from 1 to 100.", **{name: 7}))).json()
        assert reply["usage"]["completion_tokens"] == 7
        assert reply["choices"][0]["finish_reason"] == "length"

    schema = {
        "type": "object",
        "properties": {
            "score": {"type": "integer", "minimum": 3, "maximum": 5},
            "mood": {"enum": ["x", "y"]},
        },
        "required": ["score", "mood"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema, "strict": True}}
    reply = (await post(server, asks("Write a poem.", response_format=form, max_tokens=200))).json()
    verdict = json.loads(reply["choices"][0]["message"]["content"])
    assert verdict.keys() == {"score", "mood"}
    assert verdict["score"] in {3, 4, 5}
    assert verdict["mood"] in {"x", "y"}

    too_long = await post(server, asks("word " * 6000))
    assert too_long.status_code == 400
    assert too_long.json()["error"]["type"] == "exceed_context_size_error"
    await model.stop()


@real
@pytest.mark.slow
async def test_a_users_own_gguf_gets_a_server_of_its_own(fresh, tmp_path):
    model = EmbeddedModel(MODEL, cache=fresh)
    await model.start()
    path = tmp_path / "my own.gguf"
    path.hardlink_to(fresh / QWEN_0_5B.file)
    own = EmbeddedModel(path=path, cache=fresh)
    server = await own.start()
    assert server.model == "my own"
    assert (await chat(server, 4).ainvoke("Say hello.")).content
    await model.stop()
    await own.stop()
    assert shutdown_server(fresh) == 2


@runtime
async def test_weights_that_llama_cannot_load_are_an_error_with_the_log(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    model = EmbeddedModel(path=path, cache=tmp_path / "cache")
    with pytest.raises(EmbeddedModelError, match=r"(?s)while starting; its log is .*server\.log: .*bad GGUF version"):
        await model.start()
    await model.stop()
    assert shutdown_server(tmp_path / "cache") == 0


async def test_a_file_that_is_no_gguf_is_refused_before_any_process_starts(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(EmbeddedModelError, match="not a GGUF file"):
        await EmbeddedModel(path=path, cache=tmp_path).start()


async def test_an_unknown_name_is_refused(tmp_path):
    with pytest.raises(EmbeddedModelError, match="choose one of"):
        await EmbeddedModel("gpt", cache=tmp_path).start()


async def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    with pytest.raises(EmbeddedModelError, match=r"cannot run the embedded model in .*own\.gguf/cache"):
        await EmbeddedModel(path=own, cache=own / "cache").start()


def test_a_name_and_a_file_together_are_refused(tmp_path):
    with pytest.raises(EmbeddedModelError, match="not both"):
        EmbeddedModel(MODEL, tmp_path / "own.gguf")


async def test_without_llama_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("reflexion.models.embedded.server._has_llama", lambda: False)
    assert not is_installed()
    with pytest.raises(EmbeddedModelError, match=r"reflexion-graph\[local\]"):
        await EmbeddedModel(MODEL, cache=tmp_path).start()


@real
@pytest.mark.slow
async def test_a_cache_reached_through_a_link_has_the_same_server(fresh, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(fresh)
    model, other = EmbeddedModel(MODEL, cache=fresh), EmbeddedModel(MODEL, cache=link)
    assert await model.start() == await other.start()
    await model.stop()
    await other.stop()


@real
def test_installed_weights_are_found(tmp_path):
    assert installed_model(tmp_path) is not None
    assert is_installed()


async def test_stop_without_start_is_harmless(tmp_path):
    model = EmbeddedModel(MODEL, cache=tmp_path)
    await model.stop()
    await model.stop()
    assert list(tmp_path.iterdir()) == []
