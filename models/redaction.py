"""What must not leave the process in a trace: keys, whole prompts where the user says so, and texts without end."""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from reflexion.models.errors import scrub

LONGEST_TEXT = 20_000
"""Characters of one text that are traced."""
MOST_TEXT = 200_000
"""Characters of all texts together that are traced of a run's inputs, and of its outputs."""
_LONGEST_SECRET = 1_000
"""Characters that are searched beyond those that are kept, so that no half of a key is left at the cut."""
_DEEPEST = 30
_SHORT = 100

_secrets: set[str] = set()


def keep_secret(*secrets: str) -> None:
    """Let no trace of this process repeat these, whoever is traced."""
    _secrets.update(filter(None, secrets))
    _short.cache_clear()


def redacted(text: str) -> str:
    """The text without anything that is, or looks like, a key, and not longer than `LONGEST_TEXT`."""
    return _short(text) if len(text) <= _SHORT else _redacted(text)


@lru_cache(maxsize=4096)
def _short(text: str) -> str:
    """Names and numbers, of which every trace has hundreds, and all of them the same."""
    return _redacted(text)


def _redacted(text: str) -> str:
    kept = text[: LONGEST_TEXT + _LONGEST_SECRET]
    for secret in _secrets.copy():
        if secret in kept:
            kept = scrub(kept, secret)
    kept = scrub(kept)
    cut = len(text) - LONGEST_TEXT
    return kept if cut <= 0 else f"{kept[:LONGEST_TEXT]}… [{cut:,} characters cut]"


def traceable(value: Any) -> Any:
    """A copy of inputs, outputs or metadata as plain JSON: `redacted`, and not longer than `MOST_TEXT`."""
    return _Copy().of(value)


class _Copy:
    """One copy, and what is left of its length."""

    def __init__(self) -> None:
        self._left = MOST_TEXT

    def of(self, value: Any, depth: int = 0) -> Any:
        match value:
            case None | bool() | int() | float() | UUID() | date():
                return value
            case str():
                return self._text(value)
            case bytes():
                return f"[{len(value):,} bytes]"
            case Decimal():
                return str(value)
        if depth == _DEEPEST:
            return "[nested too deeply]"
        match value:
            case Mapping():
                return self._items(value.items(), depth)
            case list() | tuple() | set() | frozenset():
                return self._list(value, depth)
            case BaseModel():
                return self.of(value.model_dump(), depth + 1)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self._items(fields.items(), depth)
        return self._text(repr(value))

    def _text(self, text: str) -> str:
        if self._left <= 0 and len(text) > len("[cut]"):
            return "[cut]"
        shown = redacted(text)
        self._left -= len(shown)
        return shown

    def _items(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        return {redacted(str(name)): self.of(item, depth + 1) for name, item in items}

    def _list(self, items: Iterable[Any], depth: int) -> list[Any]:
        copied: list[Any] = []
        every = list(items)
        for item in every:
            if self._left <= 0:
                copied.append(f"[{len(every) - len(copied):,} more cut]")
                break
            copied.append(self.of(item, depth + 1))
            self._left -= 1
        return copied
