"""Tracing of one test, which leaves nothing behind for the next."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from langsmith import run_trees, utils

from reflexion.nodes import tracing
from reflexion.testing import FakeLangSmith


@contextmanager
def tracing_to(server: FakeLangSmith) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("LANGSMITH_", "LANGCHAIN_")):
                patch.delenv(name)
        for name, value in server.environment().items():
            patch.setenv(name, value)
        _forget()
        yield
        flush()
    _forget()


def flush() -> None:
    """Wait until everything that was traced has been sent."""
    if run_trees._CLIENT is not None:
        run_trees._CLIENT.flush()


def _forget() -> None:
    """What langsmith remembers of the environment, and its client."""
    run_trees._CLIENT = None
    utils.get_env_var.cache_clear()
    utils.get_tracer_project.cache_clear()
    tracing._warn_once.cache_clear()
