"""Calls that pass guards, and how they ended."""

import asyncio

import pytest

from reflexion.models import ModelError

STREAMED = [pytest.param(None, id="whole"), pytest.param(lambda _: None, id="stream")]


def kinds(results):
    return [result.kind if isinstance(result, ModelError) else type(result).__name__ for result in results]


async def together(count, ask):
    return await asyncio.gather(*(ask() for _ in range(count)), return_exceptions=True)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now
