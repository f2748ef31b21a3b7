"""What is started and closed, as a context manager of both kinds."""

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Startable(ABC):
    """Runs inside `with` and `async with`."""

    @abstractmethod
    def start(self) -> None:
        """Begin; may block."""

    @abstractmethod
    def close(self) -> None:
        """End; may block, and is harmless when that is done already."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
