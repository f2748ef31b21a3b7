"""The ways to fail: statuses, bodies, sockets and silence."""

import asyncio
import json

import httpx
import openai
import pytest
from leaks import assert_leaks_nothing

from reflexion.testing import FakeOpenAI, Reply

ASK = [{"role": "user", "content": "hi"}]


async def ask(client: openai.AsyncOpenAI, **options):
    return await client.chat.completions.create(model="m", messages=ASK, **options)


async def read(client: openai.AsyncOpenAI) -> list[str]:
    return [chunk.choices[0].delta.content or "" async for chunk in await ask(client, stream=True)]


async def test_a_status_comes_with_its_headers_and_openais_error_shape(server, client):
    server.script("m", Reply("overloaded", status=503, headers={"Retry-After": "2", "x-should-retry": "true"}))
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client)
    assert caught.value.response.headers["retry-after"] == "2"
    assert caught.value.body["message"] == "overloaded"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_carries_its_code(server, client, stream):
    server.script("m", Reply.error(429, "no money", code="insufficient_quota", type="insufficient_quota"))
    with pytest.raises(openai.RateLimitError) as caught:
        await ask(client, stream=stream)
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")


async def test_a_body_need_not_be_json(server, client):
    server.script("m", Reply(body=b"\xff<html>", headers={"Content-Type": "application/json"}), Reply(body="oops"))
    with pytest.raises(ValueError, match=r"codec|Expecting"):
        await ask(client)
    assert await ask(client) == "oops"


async def test_an_error_object_can_come_with_status_200(server, client):
    server.script("m", Reply(body={"error": {"message": "busy"}}))
    assert (await ask(client)).model_extra["error"] == {"message": "busy"}


async def test_a_dropped_connection_gives_no_byte(server, client):
    server.script("m", Reply(drop=True), "fine again")
    with pytest.raises(openai.APIConnectionError):
        await ask(client)
    assert (await ask(client)).choices[0].message.content == "fine again"


async def test_a_plain_body_can_be_cut(server, client):
    server.script("m", Reply("x" * 100, cut_after=20))
    with pytest.raises(openai.APIConnectionError):
        await ask(client)


async def test_a_stream_can_be_cut(server, client):
    server.script("m", Reply("x" * 100, cut_after=3))
    stream = await ask(client, stream=True)
    assert [await anext(stream) for _ in range(3)]
    with pytest.raises(openai.APIConnectionError):
        await anext(stream)


async def test_a_stream_can_end_without_done(server, client):
    server.script("m", Reply("hello", done=False))
    assert "".join(await read(client)) == "hello"


@pytest.mark.parametrize("reply", [Reply(hang=True), Reply("x", stall_after=5), Reply("x", delay_s=30)])
async def test_silence_lasts_until_the_client_gives_up(server, client, reply):
    server.script("m", reply, "next")
    with pytest.raises(openai.APITimeoutError):
        await ask(client, timeout=0.2)
    assert (await ask(client)).choices[0].message.content == "next"


async def test_a_stream_can_stall(server, client):
    server.script("m", Reply("x" * 100, stall_after=2))
    stream = await ask(client, stream=True)
    assert [await anext(stream) for _ in range(2)]
    third = asyncio.create_task(anext(stream))
    server.close()
    with pytest.raises(openai.APIConnectionError):
        await third


@pytest.mark.parametrize("stream", [False, True])
async def test_a_dripping_answer_is_complete_in_the_end(server, client, stream):
    server.script("m", Reply("über", drip_s=1e-6))
    text = "".join(await read(client)) if stream else (await ask(client)).choices[0].message.content
    assert text == "über"


async def test_patience_ends_every_silence():
    async with (
        FakeOpenAI(patience_s=0.05) as server,
        openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0, timeout=60) as client,
    ):
        server.script("m", Reply(hang=True), Reply("x", stall_after=1))
        server.default("held", "never")
        server.hold("held")
        for model in ("m", "m", "held"):
            with pytest.raises(openai.APIConnectionError) as caught:
                await client.chat.completions.create(model=model, messages=ASK)
            assert not isinstance(caught.value, openai.APITimeoutError)


@pytest.mark.parametrize("key", ["right", "wrong"])
async def test_a_key_is_checked_when_one_is_given(key):
    async with (
        FakeOpenAI(api_key="right") as server,
        openai.AsyncOpenAI(base_url=server.base_url, api_key=key, max_retries=0, timeout=60) as client,
    ):
        server.script("m", "welcome")
        if key == "right":
            await ask(client)
        else:
            with pytest.raises(openai.AuthenticationError):
                await ask(client)
        assert server.count == 1


async def test_other_paths_are_404_unless_scripted(server):
    server.script("/runs/batch", Reply(status=403), Reply(body={"ok": True}), "words")
    root = server.base_url.removesuffix("/v1")
    async with httpx.AsyncClient(base_url=root) as http:

        async def upload():
            for part in (b"not ", b"json"):
                yield part

        assert (await http.post("/v1/v1/chat/completions", json={"model": "m"})).json()["error"]
        assert (await http.post("/runs/batch", content=upload())).status_code == 403
        assert (await http.post("/runs/batch")).json() == {"ok": True}
        assert (await http.post("/runs/batch")).json()["choices"][0]["message"]["content"] == "words"
        assert (await http.post("/v1/chat/completions", content=b"{")).status_code == 400
    assert [seen.raw for seen in server.requests_for("/runs/batch")] == [b"not json", b"", b""]


async def test_a_faulty_script_is_a_failure_that_names_itself(server, client):
    server.script("m", lambda body: body["no such key"])
    with pytest.raises(openai.InternalServerError, match="no such key"):
        await ask(client)


async def test_a_pipelined_request_is_not_lost(server):
    server.script("m", "one", "two")
    body = json.dumps({"model": "m", "messages": []}).encode()
    one = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    port = int(server.base_url.split(":")[-1].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(one + one.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    answers = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answers.index(b'"one"') < answers.index(b'"two"')


def test_close_ends_open_connections_and_leaks_nothing():
    assert_leaks_nothing("""
        import httpx

        from reflexion.testing import FakeOpenAI, Reply

        with FakeOpenAI() as server, httpx.Client(timeout=60) as http:
            server.script("m", Reply("x" * 100, stall_after=1))
            url = f"{server.base_url}/chat/completions"
            with http.stream("POST", url, json={"model": "m", "stream": True}) as response:
                server.close()
                try:
                    response.read()
                    raise AssertionError("the connection outlives the server")
                except httpx.HTTPError:
                    pass
            try:
                http.get(url)
                raise AssertionError("the server still listens")
            except httpx.ConnectError:
                pass
            server.start()
            assert http.get(f"{server.base_url}/models").json()["data"][0]["id"] == "m"
    """)
