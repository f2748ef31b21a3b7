"""What an endpoint refuses to be sent: predicates on the request's body, mostly written as a short text."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from reflexion.testing.reply import Reply

Predicate: TypeAlias = Callable[[dict[str, Any]], bool]
"""Whether a request's body is to be refused."""

_ABSENT = object()
_EXPRESSION = re.compile(r"(?P<path>[\w.]+)(?:\s*(?P<operator>!=|=|>)\s*(?P<value>.+))?")


@dataclass(frozen=True)
class Rule:
    """One refusal: which bodies, of which model (None: of all), and the answer to them."""

    refuses: Predicate
    answer: Reply
    model: str | None = None

    def applies_to(self, body: dict[str, Any]) -> bool:
        """Whether this request is refused."""
        return self.model in {None, body.get("model")} and self.refuses(body)


def rule(
    which: str | Predicate,
    *,
    status: int = 400,
    error: dict[str, Any] | None = None,
    model: str | None = None,
) -> Rule:
    """A rule from a predicate, from a ready name in `READY`, or from an expression on the body.

    Expressions: `"max_tokens"` (present, null too), `"response_format.type=json_schema"`, `"temperature!=1"`
    (present and other), `"max_tokens>16384"`. `error` replaces OpenAI's error object.

    Raises:
        ValueError: `which` is neither a ready name nor an expression.
    """
    predicate, param = (which, None) if callable(which) else _parse(which)
    if error is None:
        error = {
            "message": f"Unsupported parameter or value: {param or 'see the documentation'}",
            "type": "invalid_request_error",
            "param": param,
            "code": "unsupported_value" if isinstance(which, str) and which != param else "unsupported_parameter",
        }
    return Rule(predicate, Reply(status=status, body={"error": error}), model)


def _parse(text: str) -> tuple[Predicate, str | None]:
    if text in READY:
        return READY[text]
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise ValueError(f"cannot read the rule {text!r}: write 'a.b', 'a=v', 'a!=v', 'a>n' or one of {[*READY]}")
    keys, operator = match["path"].split("."), match["operator"]
    value: Any = _literal(match["value"]) if operator else None

    def refuses(body: dict[str, Any]) -> bool:
        found: Any = body
        for key in keys:
            found = found.get(key, _ABSENT) if isinstance(found, dict) else _ABSENT
        if found is _ABSENT or operator is None:
            return found is not _ABSENT
        if operator == ">":
            return isinstance(found, int | float) and found > value
        return bool(found == value) is (operator == "=")

    return refuses, keys[0]


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _json_unspoken(body: dict[str, Any]) -> bool:
    wants_object = (body.get("response_format") or {}).get("type") == "json_object"
    return wants_object and "json" not in json.dumps(body.get("messages")).lower()


def _strict_schemas(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    forms = [(body.get("response_format") or {}).get("json_schema") or {}]
    forms += [tool.get("function") or {} for tool in body.get("tools") or []]
    for form in forms:
        if form.get("strict"):
            yield form.get("schema") or form.get("parameters") or {}


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every dict in a schema, itself included."""
    if isinstance(schema, dict):
        yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


def _schema_has_default(body: dict[str, Any]) -> bool:
    return any("default" in part for schema in _strict_schemas(body) for part in _objects(schema))


def _schema_is_open(body: dict[str, Any]) -> bool:
    objects = (part for schema in _strict_schemas(body) for part in _objects(schema))
    return any(o.get("type") == "object" and o.get("additionalProperties") is not False for o in objects)


def _has_null(body: dict[str, Any]) -> bool:
    return any(value is None for value in body.values())


READY: dict[str, tuple[Predicate, str | None]] = {
    "json_object without the word json": (_json_unspoken, "response_format"),
    "strict schema with default": (_schema_has_default, "response_format"),
    "strict schema without additionalProperties": (_schema_is_open, "response_format"),
    "null value": (_has_null, None),
}
"""Rules that no expression can state: name to predicate and the `param` of the error."""
