"""The fake endpoint: what a test tells it, what it saw, and how one request becomes one answer."""

import asyncio
import contextlib
import json
import time
from typing import Any

from reflexion.testing.envelope import render
from reflexion.testing.listener import Listener
from reflexion.testing.playbook import CHAT_PATH, Playbook, Recorded
from reflexion.testing.reply import Reply, Script
from reflexion.testing.rules import Predicate, rule
from reflexion.testing.startable import Startable
from reflexion.testing.wire import Connection, Request


class FakeOpenAI(Startable):
    """An OpenAI-compatible server on 127.0.0.1 that answers what it was told, model by model.

    Use it as `with` or `async with`. Scripts, rules and holds may be set at any time, from any thread.
    """

    def __init__(self, *, api_key: str | None = None, port: int = 0, patience_s: float = 60.0) -> None:
        """`api_key` None lets every key in; `port` 0 lets the system choose.

        After `patience_s` seconds without the end of an answer (held, hung, delayed, stalled or dripping) the
        connection is closed.
        """
        self._playbook = Playbook(api_key)
        self._listener = Listener(self._answer, port)
        self._patience_s = patience_s
        self._gates: dict[str, asyncio.Event] = {}
        self._arrivals = asyncio.Condition()
        self._records: list[Recorded] = []
        self._in_flight: set[Connection] = set()
        self._peak = 0

    def script(self, model: str, *replies: Script) -> None:
        """Append to the queue of `model`, one reply a request.

        A name that starts with "/" is a path of this server, for services other than chat completions.
        """
        self._playbook.script(model, replies)

    def default(self, model: str, reply: Script) -> None:
        """What `model` answers while its queue is empty."""
        self._playbook.default(model, reply)

    def refuse(
        self,
        which: str | Predicate,
        *,
        status: int = 400,
        error: dict[str, Any] | None = None,
        model: str | None = None,
    ) -> None:
        """Refuse such chat requests from now on, before any reply is taken; `rules.rule` explains `which`."""
        self._playbook.refuse(rule(which, status=status, error=error, model=model))

    def hold(self, model: str) -> None:
        """Let requests of `model` wait, before their reply is taken from the queue, until `release`."""
        self._gates.setdefault(model, asyncio.Event())

    def release(self, model: str) -> None:
        """Let the held requests of `model` go on in the order of their arrival, and later ones pass."""
        gate = self._gates.pop(model, None)
        if gate is not None and self._listener.running:
            self._listener.running_loop().call_soon_threadsafe(gate.set)

    @property
    def base_url(self) -> str:
        """What a client's `base_url` wants: `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self._listener.port}/v1"

    @property
    def requests(self) -> list[Recorded]:
        """Every request so far, in the order of arrival."""
        return list(self._records)

    def requests_for(self, model: str) -> list[Recorded]:
        """The requests of one model; for a name that starts with "/", of one path."""
        return [record for record in self.requests if record.name == model]

    @property
    def count(self) -> int:
        """How many HTTP requests arrived."""
        return len(self._records)

    @property
    def peak_concurrency(self) -> int:
        """The largest number of requests that were unanswered at one moment."""
        return self._peak

    def wait_for(self, model: str, count: int = 1, *, timeout_s: float = 60.0) -> list[Recorded]:
        """Block until `count` requests of `model` have arrived, and return all that have.

        Raises:
            TimeoutError: they did not arrive within `timeout_s` seconds.
            RuntimeError: the server is not running.
        """
        arrived = self._listener.submit(lambda: self._arrived(model, count, timeout_s))
        # The second limit is for a server whose loop is busy, for example with a script that blocks.
        return arrived.result(2 * timeout_s + 10)

    async def wait_for_async(self, model: str, count: int = 1, *, timeout_s: float = 60.0) -> list[Recorded]:
        """`wait_for` for callers that have an event loop to keep going."""
        return await asyncio.wrap_future(self._listener.submit(lambda: self._arrived(model, count, timeout_s)))

    def start(self) -> None:
        """Listen; after `close`, on the same port again and with the same scripts and records.

        Raises:
            OSError: the port is taken.
            RuntimeError: the server runs already.
        """
        # An asyncio primitive belongs to the loop that first waited for it, and every start has its own loop.
        self._arrivals = asyncio.Condition()
        self._gates = {model: asyncio.Event() for model in self._gates}
        self._listener.start()

    def close(self) -> None:
        """End all connections and the thread. What was recorded stays readable."""
        self._listener.close()

    async def _answer(self, connection: Connection, request: Request) -> bool:
        self._in_flight.add(connection)
        # A client may give up one request and send the next before the end of the first has been worked off.
        self._peak = max(self._peak, sum(not waiting.has_left for waiting in self._in_flight))
        try:
            record = await self._record(request)
            async with asyncio.timeout(self._patience_s):
                return await self._play(connection, record)
        except (TimeoutError, ConnectionError):
            return False
        finally:
            self._in_flight.discard(connection)

    async def _record(self, request: Request) -> Recorded:
        body = _json_object(request.raw)
        record = Recorded(
            model=str(body.get("model", "")) if request.path == CHAT_PATH else "",
            method=request.method,
            path=request.path,
            headers=request.headers,
            body=body,
            raw=request.raw,
            arrived=time.monotonic(),
            index=len(self._records),
        )
        self._records.append(record)
        async with self._arrivals:
            self._arrivals.notify_all()
        return record

    async def _play(self, connection: Connection, record: Recorded) -> bool:
        try:
            reply = self._playbook.unscripted(record)
            if reply is None:
                if gate := self._gates.get(record.name):
                    await gate.wait()
                    # The end of a client that died before the release is heard in this round of the loop.
                    await asyncio.sleep(0)
                    if connection.has_left:
                        return False
                reply = self._playbook.scripted(record)
            response = render(reply, record.body, record.index)
        except Exception as error:  # noqa: BLE001 - a test's own predicate or script failed: let the test see it
            reply = Reply.error(500, f"FakeOpenAI's script failed: {error!r}", type="script_error")
            response = render(reply, record.body, record.index)
        await asyncio.sleep(reply.delay_s)
        if reply.hang:
            await _for_ever()
        if reply.drop:
            return False
        await connection.send(response)
        if response.ending == "stall":
            await _for_ever()
        return response.ending == "finish"

    async def _arrived(self, model: str, count: int, timeout_s: float) -> list[Recorded]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._arrivals:
                await self._arrivals.wait_for(lambda: len(self.requests_for(model)) >= count)
        found = self.requests_for(model)
        if len(found) < count:
            raise TimeoutError(f"{len(found)} of {count} requests of {model!r} came within {timeout_s} s")
        return found


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
