"""A loopback LangSmith: takes traces and feedback by its own HTTP protocol, and misbehaves on command."""

import asyncio
import json
import re
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from reflexion.testing.envelope import render
from reflexion.testing.listener import Listener
from reflexion.testing.reply import Reply
from reflexion.testing.startable import Startable
from reflexion.testing.traces import TracedRun, Traces, Tree, tree_of
from reflexion.testing.wire import Connection, Request

Route: TypeAlias = Callable[[Request, bytes, re.Match[str]], Any]
"""Answers a request with JSON, or with a `Reply`; gets the request, its body decompressed, and the path's match."""


class FakeLangSmith(Startable):
    """A LangSmith server on 127.0.0.1 that keeps what the `langsmith` client sends.

    Use it as `with` or `async with`. What was taken can be read at any time, from any thread, and after the end.
    """

    def __init__(self, *, zstd: bool = True, multipart: bool = True, port: int = 0, patience_s: float = 60.0) -> None:
        """A server that `/info` describes so.

        Args:
            zstd: whether clients may compress what they send.
            multipart: whether there is `/runs/multipart`; otherwise clients are to use `/runs/batch`.
            port: 0 lets the system choose.
            patience_s: seconds after which a connection that is left hanging is closed.
        """
        self._zstd = zstd
        self._multipart = multipart
        self._patience_s = patience_s
        self._listener = Listener(self._answer, port)
        self._traces = Traces()
        self._requests: list[Request] = []
        self._trouble: Reply | None = None
        self._arrived = threading.Condition()
        self._routes: list[tuple[str, re.Pattern[str], Route]] = []
        self.route("GET", "/info", self._info)
        self.route("POST", "/runs/multipart", self._take_multipart)
        self.route("POST", "/runs/batch", self._take_batch)
        self.route("POST", "/runs", self._take_run)
        self.route("PATCH", "/runs/(.+)", self._take_run)
        self.route("POST", "/feedback", self._take_feedback)

    def route(self, method: str, path: str, answer: Route) -> None:
        """Answer one more kind of request.

        Args:
            method: `GET`, `POST` and so on.
            path: a regular expression for the whole path, without its query.
            answer: see `Route`.
        """
        self._routes.append((method, re.compile(path), answer))

    def misbehave(self, reply: Reply) -> None:
        """Answer every request so from now on, and keep nothing of it: `Reply(status=403)`, `Reply(hang=True)`, …"""
        self._trouble = reply

    def behave(self) -> None:
        """Answer as LangSmith does again."""
        self._trouble = None

    @property
    def url(self) -> str:
        """What `LANGSMITH_ENDPOINT` wants."""
        return f"http://127.0.0.1:{self._listener.port}"

    def environment(self, *, api_key: str = "lsv2_pt_fake_key", project: str = "test") -> dict[str, str]:
        """The variables that switch tracing to this server on."""
        return {
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_ENDPOINT": self.url,
            "LANGSMITH_API_KEY": api_key,
            "LANGSMITH_PROJECT": project,
        }

    @property
    def requests(self) -> list[Request]:
        """Every request so far, refused ones included, in the order of arrival; bodies as they came."""
        return list(self._requests)

    @property
    def bodies(self) -> bytes:
        """The bodies of all requests so far, decompressed: what to search for what must not have been sent."""
        return b"\n".join(_plain(request) for request in self.requests)

    @property
    def runs(self) -> list[TracedRun]:
        """Every run so far, parents before their children, in the order of their start."""
        return self._traces.runs

    @property
    def feedback(self) -> list[dict[str, Any]]:
        """Every piece of feedback so far, one by id."""
        return self._traces.feedback

    def tree(self) -> Tree:
        """The runs so far as nested names: `[("reflexion", [("recall", []), …])]`."""
        return tree_of(self.runs)

    def named(self, name: str) -> list[TracedRun]:
        """The runs of that name."""
        return [run for run in self.runs if run.name == name]

    def wait_for(self, condition: Callable[["FakeLangSmith"], Any], *, timeout_s: float = 60.0) -> None:
        """Block until something that has arrived makes the condition true.

        Raises:
            TimeoutError: nothing did within `timeout_s` seconds.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: condition(self), timeout_s):
                raise TimeoutError(f"what was waited for did not arrive within {timeout_s} s")

    def start(self) -> None:
        """Listen; after `close`, on the same port again."""
        self._listener.start()

    def close(self) -> None:
        """End all connections and the thread. What was taken stays readable."""
        self._listener.close()

    async def _answer(self, connection: Connection, request: Request) -> bool:
        trouble = self._trouble
        reply = trouble or self._take(request)
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()
        await asyncio.sleep(reply.delay_s)
        if reply.hang:
            await asyncio.sleep(self._patience_s)
        if reply.hang or reply.drop:
            return False
        response = render(reply, {}, len(self._requests))
        await connection.send(response)
        return response.ending == "finish"

    def _take(self, request: Request) -> Reply:
        path = request.path.partition("?")[0]
        for method, pattern, answer in self._routes:
            match = pattern.fullmatch(path)
            if match and method == request.method:
                try:
                    answered = answer(request, _plain(request), match)
                except Exception as error:  # noqa: BLE001 - what cannot be read is the client's mistake
                    return Reply(status=422, body={"detail": repr(error)})
                return answered if isinstance(answered, Reply) else Reply(body=answered)
        return Reply(status=404, body={"detail": "Not Found"})

    def _info(self, *_: Any) -> Any:
        return {
            "version": "0.13.0",
            "instance_flags": {"zstd_compression_enabled": self._zstd},
            "batch_ingest_config": {
                "use_multipart_endpoint": self._multipart,
                "size_limit": 100,
                "size_limit_bytes": 20_971_520,
                "scale_up_nthreads_limit": 16,
                "scale_up_qsize_trigger": 1000,
                "scale_down_nempty_trigger": 4,
            },
        }

    def _take_multipart(self, request: Request, body: bytes, _: re.Match[str]) -> Any:
        if not self._multipart:
            return Reply(status=404, body={"detail": "Not Found"})
        self._traces.take_multipart(request.headers["content-type"], body)
        return _ACCEPTED

    def _take_batch(self, _request: Request, body: bytes, _: re.Match[str]) -> Any:
        given = json.loads(body)
        for fields in given.get("post") or ():
            self._traces.take_run("post", fields)
        for fields in given.get("patch") or ():
            self._traces.take_run("patch", fields)
        return _ACCEPTED

    def _take_run(self, request: Request, body: bytes, match: re.Match[str]) -> Any:
        fields = json.loads(body)
        if request.method == "PATCH":
            self._traces.take_run("patch", {"id": match[1]} | fields)
        else:
            self._traces.take_run("post", fields)
        return _ACCEPTED

    def _take_feedback(self, _request: Request, body: bytes, _: re.Match[str]) -> Any:
        self._traces.take_feedback(json.loads(body))
        return json.loads(body)


_ACCEPTED = Reply(status=202, body={"message": "Runs batch ingested"})


def _plain(request: Request) -> bytes:
    """The body without its compression."""
    if request.headers.get("content-encoding") != "zstd":
        return request.raw
    import zstandard  # noqa: PLC0415 - comes with langsmith, and only a compressed body needs it

    return zstandard.ZstdDecompressor().decompressobj().decompress(request.raw)
