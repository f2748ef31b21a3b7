"""A loopback server in a daemon thread with its own event loop: callers need none, or may block theirs."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from reflexion.testing.wire import Connection, Request

_START_STOP_S = 60.0

T = TypeVar("T")
Answer: TypeAlias = Callable[[Connection, Request], Coroutine[Any, Any, bool]]
"""Answers one request; False if the connection is to be closed. Cancelled when the client leaves."""


class Listener:
    """Accepts connections on 127.0.0.1 between `start` and `close`, and again after another `start`."""

    def __init__(self, answer: Answer, port: int) -> None:
        self._answer = answer
        self.port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Return when connections are accepted, `port` being known.

        Raises:
            OSError: the port is taken.
            RuntimeError: it runs already.
        """
        if self._thread is not None:
            raise RuntimeError("this server is already running; make another one")
        self._stop = asyncio.Event()
        listening: Future[int] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(listening)), name="fake-server", daemon=True)
        thread.start()
        self.port = listening.result(_START_STOP_S)
        self._thread = thread

    def close(self) -> None:
        """End all connections, the loop and the thread; harmless when that is done already."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.running_loop().call_soon_threadsafe(self._stop.set)
            thread.join(_START_STOP_S)
            self._loop = None

    @property
    def running(self) -> bool:
        """Whether connections are accepted."""
        return self._loop is not None

    def running_loop(self) -> asyncio.AbstractEventLoop:
        """The server's loop.

        Raises:
            RuntimeError: it does not run.
        """
        if self._loop is None:
            raise RuntimeError("the server is not running; use it in a `with`")
        return self._loop

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run `work` on the server's loop."""
        loop = self.running_loop()
        return asyncio.run_coroutine_threadsafe(work(), loop)

    async def _run(self, listening: "Future[int]") -> None:
        try:
            server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        except OSError as error:
            listening.set_exception(error)
            return
        self._loop = asyncio.get_running_loop()
        listening.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._converse(Connection(reader, writer)))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _converse(self, connection: Connection) -> None:
        abort = True
        try:
            while (request := await connection.request()) and await self._exchange(connection, request):
                pass
            abort = False
        finally:
            await connection.close(abort=abort)

    async def _exchange(self, connection: Connection, request: Request) -> bool:
        """Answer one request; True if the connection can serve another."""
        answering = asyncio.create_task(self._answer(connection, request))
        leaving = asyncio.create_task(connection.left())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            answering.cancel()  # does nothing to an answer that is complete
            await asyncio.wait({answering, leaving})
        return not answering.cancelled() and answering.result() and request.keeps_alive
