"""An event loop in the background for callers that have none, or that sit inside one."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_guard = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_in_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the process's background loop and wait for its result.

    All calls share one loop, since clients and databases belong to the loop in which they were opened.
    An interrupt (Ctrl-C) cancels the coroutine and waits for it to clean up.
    """
    future = asyncio.run_coroutine_threadsafe(work, _background_loop())
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop per process is the point
    with _guard:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="reflexion-sync", daemon=True).start()
        return _loop
