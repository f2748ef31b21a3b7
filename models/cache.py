"""Answers identical deterministic requests locally, in the memory of one process."""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from langchain_core.messages import AIMessage, BaseMessage

from reflexion.models.ends import DeadlineExceeded
from reflexion.models.replies import Reply, read_reply

T = TypeVar("T", Reply, AIMessage)
"""A cache holds what its client deals in: replies as read, or whole messages."""

_LEAVES_THE_REPLY_AS_IT_IS = {"max_completion_tokens", "max_tokens", "stream", "stream_options", "stream_usage"}
"""Parameters outside the key. A reply that was not cut off is the same under any higher limit, and fits no worse under
a lower one; and the limit moves with what is left of a budget."""

_NOT_SENT = {"id", "response_metadata", "usage_metadata"}
"""Fields of a message that no request carries."""


def cache_key(endpoint: str, model: str, messages: Sequence[BaseMessage], parameters: Mapping[str, Any]) -> str | None:
    """What two requests share whose replies are the same; None for a request whose reply is left to chance.

    Only temperature 0 counts as deterministic: a seed is a best effort by those endpoints that know it at all, and the
    temperature of a request that names none is the endpoint's own.

    Args:
        endpoint: base URL.
        model: the model's name.
        messages: the prompt.
        parameters: all else that shapes the reply, as it is sent: an endpoint that takes no temperature gets none.
    """
    sent = {**parameters, **(parameters.get("extra_body") or {})}
    if sent.get("temperature") != 0:
        return None
    aside = _LEAVES_THE_REPLY_AS_IT_IS | {"extra_body", "temperature"}
    shaping = {name: value for name, value in sent.items() if name not in aside}
    prompt = [message.model_dump(exclude=_NOT_SENT) for message in messages]
    try:
        text = json.dumps([endpoint, model, prompt, shaping], sort_keys=True)
    except (TypeError, ValueError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


class Cache(Generic[T]):
    """Keeps whole replies, those used least recently leaving first; concurrent identical requests share one.

    It stands outside retries and guards, as a cached reply needs none of them. It is no guard: it has the reply.
    """

    def __init__(self, *, max_entries: int = 1_000, max_bytes: int = 64 * 2**20) -> None:
        """Start empty. `max_bytes` bounds the sum of the replies' lengths as text, not what Python needs for them."""
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._bytes = 0
        self._flights: dict[str, _Flight[T]] = {}

    async def answer(
        self, key: str | None, ask: Callable[[], Awaitable[T]], *, left_s: float | None = None
    ) -> tuple[T, bool]:
        """The reply, and whether it came from here.

        While a request is in flight, identical ones wait for it. Where it fails, or its reply is not for keeping, each
        of them asks for itself: another's limits and bad luck are not theirs. Where it is cancelled, the next asks.

        Args:
            key: see `cache_key`; None is always asked.
            ask: makes the request; what it raises is raised, and not kept.
            left_s: seconds that the caller can wait for an identical request; None for any time.

        Raises:
            DeadlineExceeded: the identical request took longer than that.
        """
        if key is None:
            return await ask(), False
        try:
            async with asyncio.timeout(left_s):
                found = await self._found(key)
        except TimeoutError as error:
            raise DeadlineExceeded("no time left to wait for the reply to an identical request") from error
        if found is not None:
            return deepcopy(found), True
        return await self._fly(key, ask), False

    @property
    def size(self) -> tuple[int, int]:
        """Entries and bytes."""
        return len(self._entries), self._bytes

    async def _found(self, key: str) -> T | None:
        """What is kept, or what the request in flight brings; None where the caller has to ask."""
        while True:
            if entry := self._entries.get(key):
                self._entries.move_to_end(key)
                return entry.reply
            flight = self._flights.get(key)
            if flight is None:
                return None
            await flight.ended.wait()
            if not flight.cancelled:
                return flight.reply

    async def _fly(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        flight: _Flight[T] = _Flight()
        self._flights.setdefault(key, flight)
        try:
            reply = await ask()
            if is_whole(reply):
                flight.reply = deepcopy(reply)
                self._keep(key, flight.reply)
        except asyncio.CancelledError:
            flight.cancelled = True
            raise
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.ended.set()
        return reply

    def _keep(self, key: str, reply: T) -> None:
        size = len(repr(reply).encode("utf-8", "replace"))
        if size > self._max_bytes:
            return
        if former := self._entries.pop(key, None):
            self._bytes -= former.size
        self._entries[key] = _Entry(reply, size)
        self._bytes += size
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.size


def is_whole(reply: Reply | AIMessage) -> bool:
    """Whether a reply may be given again: neither empty, nor refused, nor cut off."""
    read = reply if isinstance(reply, Reply) else read_reply(reply)
    return bool(read.text or read.arguments is not None) and not read.refusal and not read.truncated


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    reply: T
    size: int


@dataclass(slots=True)
class _Flight(Generic[T]):
    """A request on its way, for which identical ones wait."""

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reply: T | None = None
    cancelled: bool = False
