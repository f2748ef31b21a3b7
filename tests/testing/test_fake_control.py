"""Steering a running server: holds, waiting for arrivals, concurrency, other threads and processes."""

import asyncio
import subprocess
import sys
import threading

import httpx
import pytest
from blockbuster import blockbuster_ctx
from openai import AsyncOpenAI

from reflexion.testing import FakeOpenAI, Reply

ASK = [{"role": "user", "content": "hi"}]
POST = "import sys, httpx; httpx.post(sys.argv[1], json={'model': 'm', 'messages': []}, timeout=100)"


async def test_peak_concurrency_is_what_the_client_allowed(server, client):
    server.default("m", Reply("x", delay_s=0.005))
    server.hold("m")
    slots = asyncio.Semaphore(3)

    async def ask() -> None:
        async with slots:
            await client.chat.completions.create(model="m", messages=ASK)

    asking = asyncio.gather(*(ask() for _ in range(30)))
    await server.wait_for_async("m", 3)
    server.release("m")
    await asking
    assert (server.peak_concurrency, server.count) == (3, 30)


async def test_a_request_given_up_is_no_longer_counted(server, client):
    server.script("m", *[Reply(hang=True), "x"] * 10)
    for _ in range(10):
        call = asyncio.create_task(client.chat.completions.create(model="m", messages=ASK))
        await server.wait_for_async("m", server.count + 1)
        call.cancel()
        await asyncio.wait({call})
        await client.chat.completions.create(model="m", messages=ASK)
    assert (server.peak_concurrency, server.count) == (1, 20)


@pytest.mark.parametrize("stream", [False, True])
def test_peak_concurrency_of_one_thread_is_one(stream):
    with FakeOpenAI() as server:
        server.default("m", "x")
        for _ in range(20):
            httpx.post(f"{server.base_url}/chat/completions", json={"model": "m", "stream": stream})
        assert server.peak_concurrency == 1


def test_held_requests_wait_for_a_release_from_any_thread():
    with FakeOpenAI() as server:
        server.script("m", "first", "second")
        server.hold("m")
        answers: list[str] = []

        def ask() -> None:
            response = httpx.post(f"{server.base_url}/chat/completions", json={"model": "m"}, timeout=100)
            answers.append(response.json()["choices"][0]["message"]["content"])

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert len(server.wait_for("m", 2)) == 2
        assert answers == []
        server.release("m")
        for thread in threads:
            thread.join(100)
        assert sorted(answers) == ["first", "second"]


async def test_waiting_for_requests_that_do_not_come_says_how_many_did(server):
    server.hold("m")
    with pytest.raises(TimeoutError, match="0 of 2 requests of 'm'"):
        await server.wait_for_async("m", 2, timeout_s=0.01)
    with pytest.raises(TimeoutError, match="0 of 1 requests of 'm'"):
        await asyncio.to_thread(server.wait_for, "m", timeout_s=0.01)


def test_a_killed_process_takes_nothing_from_the_queue():
    with FakeOpenAI() as server:
        server.script("m", "for the survivor")
        server.hold("m")
        url = f"{server.base_url}/chat/completions"
        with subprocess.Popen([sys.executable, "-c", POST, url]) as victim:
            server.wait_for("m")
            victim.kill()
        server.release("m")
        answer = httpx.post(url, json={"model": "m"}).json()
        assert answer["choices"][0]["message"]["content"] == "for the survivor"


async def test_neither_loop_is_blocked():
    with blockbuster_ctx():
        async with FakeOpenAI() as server:
            server.script("m", "x", Reply("y", drip_s=1e-6))
            async with AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
                for _ in range(2):
                    await client.chat.completions.create(model="m", messages=ASK)
            await server.wait_for_async("m", 2)
            assert len(server.requests_for("m")) == server.count == 2


def test_misuse_is_named():
    server = FakeOpenAI()
    with pytest.raises(RuntimeError, match="not running"):
        server.wait_for("m")
    with server:
        with pytest.raises(RuntimeError, match="already running"):
            server.start()
        port = int(server.base_url.split(":")[-1].split("/")[0])
        with pytest.raises(OSError, match="in use"):
            FakeOpenAI(port=port).start()
    server.close()
