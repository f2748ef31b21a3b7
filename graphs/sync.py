"""An event loop in the background for callers that have none, or that sit inside one."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_guard = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_in_background(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in the process's background loop and wait for its result.

    All calls share one loop, since clients and databases belong to the loop in which they were opened.
    An interrupt (Ctrl-C) cancels the coroutine and waits for it to clean up.

    Raises:
        RuntimeError: it is called inside the background loop, which it would block for ever.
    """
    loop = _background_loop()
    if _running() is loop:
        raise RuntimeError("run_sync inside an async function that run_sync itself runs: await `run` there")
    ended = threading.Event()

    async def to_its_end() -> T:
        try:
            return await work()
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(to_its_end(), loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        if future.cancel():
            ended.wait()
        raise


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop per process is the point
    with _guard:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="reflexion-sync", daemon=True).start()
        return _loop


def _forget_in_child() -> None:
    """A forked process has the loop, but not the thread that ran it."""
    global _guard, _loop
    _guard, _loop = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
