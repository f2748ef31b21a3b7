"""Finds the JSON object in a model's reply."""

import json
import re
from collections.abc import Callable
from typing import Any

from reflexion.models.replies import storable

_FENCE = re.compile(r"```[\w-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)


class NoJsonError(ValueError):
    """The reply holds no JSON object, or several that differ."""


def find_object(text: str) -> dict[str, Any]:
    """The one JSON object of the text.

    Tried in this order: the whole text, the balanced objects in its fenced blocks and in the prose around them,
    and last a light repair of these (single quotes, trailing commas). Later ways are tried only where the earlier
    find nothing, so a fence inside a string of valid JSON does no harm. NaN and infinity become null.

    Raises:
        NoJsonError: there is none, or there are several different ones.
    """
    whole = _strict(text)
    if whole is not None:
        return whole
    parts = [*_FENCE.findall(text), _FENCE.sub("\n", text)]
    regions = [region for part in parts for region in _regions(part)]
    for read in (_strict, _repaired):
        found = _only(regions, read)
        if found is not None:
            return found
    raise NoJsonError("the reply holds no JSON object")


def _only(regions: list[str], read: Callable[[str], dict[str, Any] | None]) -> dict[str, Any] | None:
    found = [value for region in regions if (value := read(region)) is not None]
    found = [value for value in found if value] or found  # `{}` is more often a figure of speech than an answer
    distinct = {json.dumps(value, sort_keys=True) for value in found}
    if len(distinct) > 1:
        raise NoJsonError(f"the reply holds {len(distinct)} different JSON objects where one was asked for")
    return found[0] if found else None


def _strict(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, object_pairs_hook=_without_contradiction, parse_constant=lambda _: None)
    except NoJsonError:
        raise
    except (ValueError, RecursionError):
        return None
    return storable(value) if isinstance(value, dict) else None


def _without_contradiction(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if any(read[key] != value for key, value in pairs):
        raise NoJsonError("the reply holds one key twice with different values")
    return read


def _repaired(region: str) -> dict[str, Any] | None:
    from json_repair import loads  # noqa: PLC0415 - rarely needed

    try:
        value = loads(region)
    except (ValueError, RecursionError):
        return None
    return storable(value) if isinstance(value, dict) and value else None


def _regions(text: str) -> list[str]:
    """The outermost `{…}` of the text, string literals respected.

    Nothing inside an object that never closes counts: a verdict cut off in the middle must not yield one
    of its parts.
    """
    regions, depth, start, quoted, escaped = [], 0, 0, False, False
    for position, character in enumerate(text):
        if quoted:
            quoted, escaped = escaped or character != '"', character == "\\" and not escaped
        elif character == "{":
            start, depth = (start, depth + 1) if depth else (position, 1)
        elif character == "}" and depth:
            depth -= 1
            if not depth:
                regions.append(text[start : position + 1])
        elif character == '"' and depth:
            quoted = True
    return regions
