"""HTTP/1.1 by hand: a client library would not let us cut, stall or drip."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal

_READ_BYTES = 65536


@dataclass(frozen=True)
class Request:
    """A request as it came: header names in lower case, the body as bytes."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants to send another request on this connection."""
        return self.headers.get("connection", "").lower() != "close"


@dataclass(frozen=True)
class Response:
    """An answer ready to travel."""

    status: int
    headers: Mapping[str, str]
    frames: Sequence[bytes]
    """Parts of the body; each is one HTTP chunk when `chunked`."""

    chunked: bool = False
    ending: Literal["finish", "cut", "stall"] = "finish"
    drip_s: float = 0.0
    """Seconds before each byte of the body; 0 sends frame by frame."""


@dataclass(eq=False)
class Connection:
    """One client's socket. Everything that is read passes through one buffer, so watching loses no byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _buffer: bytearray = field(default_factory=bytearray)

    async def request(self) -> Request | None:
        """The next request, or None when the client has left or does not speak HTTP."""
        try:
            method, path, *_ = (await self._line()).split(" ")
            headers: dict[str, str] = {}
            while line := await self._line():
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
            if headers.get("transfer-encoding", "").lower() == "chunked":
                raw = await self._chunks()
            else:
                raw = await self._exactly(int(headers.get("content-length", "0")))
        except (EOFError, ValueError):
            return None
        return Request(method, path, headers, raw)

    @property
    def has_left(self) -> bool:
        """Whether the client's side is closed, as far as the loop has heard."""
        return self.reader.at_eof() or self.reader.exception() is not None

    async def left(self) -> None:
        """Return as soon as the client closes its side; bytes that come before stay in the buffer."""
        while await self._fill():
            pass

    async def send(self, response: Response) -> None:
        """Write the answer as far as its ending says.

        All pauses come before a write: nothing is awaited after the last byte, so whoever counts requests in
        flight can book the end of this one before the client can send its next.
        """
        self.writer.write(_head(response))
        for frame in response.frames:
            for part in (frame[i : i + 1] for i in range(len(frame))) if response.drip_s else (frame,):
                await asyncio.sleep(response.drip_s)
                await self.writer.drain()
                self.writer.write(b"%x\r\n%b\r\n" % (len(part), part) if response.chunked else part)
        if response.chunked and response.ending == "finish":
            self.writer.write(b"0\r\n\r\n")

    async def close(self, *, abort: bool = False) -> None:
        """Close the socket: after what is buffered has gone out, or at once with `abort`."""
        if abort:
            self.writer.transport.abort()
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def _fill(self) -> bool:
        try:
            data = await self.reader.read(_READ_BYTES)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)

    async def _line(self) -> str:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if not await self._fill():
                raise EOFError
        return (await self._exactly(end + 2))[:-2].decode("latin-1")

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not await self._fill():
                raise EOFError
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _chunks(self) -> bytes:
        body = bytearray()
        while size := int((await self._line()).partition(";")[0], 16):
            body += (await self._exactly(size + 2))[:-2]
        while await self._line():  # trailers
            pass
        return bytes(body)


def _head(response: Response) -> bytes:
    phrase = HTTPStatus(response.status).phrase if response.status in set(HTTPStatus) else "Scripted"
    lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{k}: {v}" for k, v in response.headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
