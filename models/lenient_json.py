"""Finds the JSON object in a model's reply."""

import json
import re
from typing import Any

_FENCE = re.compile(r"```[\w-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)


class NoJsonError(ValueError):
    """The reply holds no JSON object, or several that differ."""


def find_object(text: str) -> dict[str, Any]:
    """The one JSON object of the text.

    Tried in this order: the whole text, the fenced blocks, the balanced objects in prose, and last a light
    repair (single quotes, trailing commas). Later ways are tried only where the
    earlier find nothing, so a fence inside a string of valid JSON does no harm.

    Raises:
        NoJsonError: there is none, or there are several different ones.
    """
    for candidates in (_whole, _fenced, _balanced, _repaired):
        found = candidates(text)
        if any(other != found[0] for other in found[1:]):
            raise NoJsonError(f"the reply holds {len(found)} different JSON objects where one was asked for")
        if found:
            return found[0]
    raise NoJsonError("the reply holds no JSON object")


def _whole(text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return [value] if isinstance(value, dict) else []


def _fenced(text: str) -> list[dict[str, Any]]:
    return [found for body in _FENCE.findall(text) for found in _whole(body)]


def _balanced(text: str) -> list[dict[str, Any]]:
    return [found for region in _regions(text) for found in _whole(region)]


def _repaired(text: str) -> list[dict[str, Any]]:
    from json_repair import loads  # noqa: PLC0415 - rarely needed

    values = [loads(region) for region in _regions(text)]
    return [value for value in values if isinstance(value, dict) and value]


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
