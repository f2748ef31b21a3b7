"""Calls that pass guards, and how they ended."""

import asyncio

import pytest

from reflexion.models import ModelError

STREAMED = [pytest.param(None, id="whole"), pytest.param(lambda _: None, id="stream")]


def kinds(results):
    return [result.kind if isinstance(result, ModelError) else type(result).__name__ for result in results]


async def together(count, ask):
    return await asyncio.gather(*(ask() for _ in range(count)), return_exceptions=True)


async def all_but(some, pending):
    """What came of those of the `pending` tasks that ended first, which are taken out."""
    ended = []
    while len(pending) > some:
        done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        pending -= done
        ended += await asyncio.gather(*done, return_exceptions=True)
    return ended


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)
