"""Output of unknown length in bounded memory: the head and the tail are kept."""

from collections import deque


class HeadAndTail:
    """Bytes with the middle left out.

    Args:
        limit: bytes kept, half from each end.
    """

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.seen = 0
        """Bytes fed in so far."""

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self.seen += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data[-self._half :])
            self._tail_size += len(self._tail[-1])
            while self._tail_size - len(self._tail[0]) >= self._half:
                self._tail_size -= len(self._tail.popleft())

    def text(self) -> str:
        """Give what was kept as text: always valid Unicode, with a note where bytes are missing."""
        tail = b"".join(self._tail)[-self._half :]
        left_out = self.seen - len(self._head) - len(tail)
        if not left_out:
            return (self._head + tail).decode("utf-8", "replace")
        note = f"\n… {left_out:,} bytes left out …\n"
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
