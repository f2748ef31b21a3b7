"""The part of LangSmith's HTTP protocol that datasets, examples and experiments (its sessions) need, without a socket.

`FakeDatasets.mount` adds them to a server that has routes; `answer` fits into any other.
"""

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from reflexion.testing.reply import Reply
from reflexion.testing.wire import Request

Entity = dict[str, Any]

ROUTES = (
    ("GET", "/datasets(/.*)?"),
    ("GET", "/examples"),
    ("GET", "/sessions(/.*)?"),
    ("PATCH", "/sessions/.*"),
    ("POST", "/datasets"),
    ("POST", "/examples(/bulk)?"),
    ("POST", "/sessions"),
)
"""Method and path, as a regular expression, of what `answer` knows."""

TENANT = "00000000-0000-4000-8000-000000000001"


class Routed(Protocol):
    """A server to which kinds of requests can be added."""

    def route(self, method: str, path: str, answer: Callable[[Request, bytes, re.Match[str]], Any]) -> None:
        """Answer requests whose path, without its query, matches the regular expression as a whole."""
        ...


class FakeDatasets:
    """Datasets, examples and experiments by their ids, as the client has made and changed them."""

    def __init__(self) -> None:
        self.datasets: dict[str, Entity] = {}
        self.examples: dict[str, Entity] = {}
        self.experiments: dict[str, Entity] = {}

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON body for a request.

        Args:
            method: such as `GET`.
            target: path and query.
            body: as it came; JSON where there is one.
        """
        url = urlsplit(target)
        query = parse_qs(url.query)
        kind, _, key = url.path.strip("/").partition("/")
        match method, kind, key:
            case "POST", "datasets", "":
                return self._make_dataset(json.loads(body))
            case "POST", "examples", "" | "bulk":
                return self._add_examples(json.loads(body))
            case "POST", "sessions", "":
                return self._make_experiment(json.loads(body), again="upsert" in query)
            case "PATCH", "sessions", _:
                return self._change_experiment(key, json.loads(body))
            case "GET", "datasets", _:
                return _look_up(self.datasets, key, query)
            case "GET", "sessions", _:
                return _look_up(self.experiments, key, query)
            case "GET", "examples", "":
                return 200, self._list_examples(query)
        return 404, {"detail": f"no {method} {url.path}"}

    def mount(self, server: Routed) -> None:
        """Have a server ask `answer` for all of `ROUTES`."""

        def answer(request: Request, body: bytes, _: re.Match[str]) -> Reply:
            status, made = self.answer(request.method, request.path, body)
            return Reply(status=status, body=made)

        for method, path in ROUTES:
            server.route(method, path, answer)

    def _make_dataset(self, given: Entity) -> tuple[int, Entity]:
        if any(other["name"] == given["name"] for other in self.datasets.values()):
            return 409, {"detail": "a dataset of this name exists"}
        made = {"id": str(uuid.uuid4()), "created_at": _now(), "example_count": 0, "session_count": 0, **given}
        self.datasets[made["id"]] = made
        return 200, made

    def _add_examples(self, given: Entity | list[Entity]) -> tuple[int, Any]:
        made = []
        for example in given if isinstance(given, list) else [given]:
            dataset = self.datasets.get(str(example["dataset_id"]))
            if dataset is None:
                return 404, {"detail": "no such dataset"}
            one = {"created_at": _now(), "modified_at": _now(), **example}
            one["id"] = str(example.get("id") or uuid.uuid4())
            one["name"] = f"#{one['id'][:4]}"
            self.examples[one["id"]] = one
            dataset["example_count"] += 1
            made.append(one)
        return 200, made if isinstance(given, list) else made[0]

    def _list_examples(self, query: dict[str, list[str]]) -> list[Entity]:
        wanted, ids = query.get("dataset"), query.get("id")
        found = [
            example
            for example in self.examples.values()
            if (not wanted or example["dataset_id"] in wanted) and (not ids or example["id"] in ids)
        ]
        offset, limit = int(query.get("offset", ["0"])[0]), int(query.get("limit", ["100"])[0])
        return found[offset : offset + limit]

    def _make_experiment(self, given: Entity, *, again: bool) -> tuple[int, Entity]:
        for other in self.experiments.values():
            if other["name"] == given["name"]:
                return (200, other) if again else (409, {"detail": "an experiment of this name exists"})
        made = {"start_time": _now(), "tenant_id": TENANT, **given}
        self.experiments[made["id"]] = made
        return 200, made

    def _change_experiment(self, key: str, given: Entity) -> tuple[int, Entity]:
        if key not in self.experiments:
            return 404, {"detail": "no such experiment"}
        self.experiments[key] |= {name: value for name, value in given.items() if value is not None}
        return 200, self.experiments[key]


def _look_up(entities: dict[str, Entity], key: str, query: dict[str, list[str]]) -> tuple[int, Any]:
    if key:
        return (200, entities[key]) if key in entities else (404, {"detail": f"no {key}"})
    names = query.get("name")
    found = [entity for entity in entities.values() if not names or entity["name"] in names]
    return 200, found[: int(query.get("limit", ["100"])[0])]


def _now() -> str:
    return datetime.now(UTC).isoformat()
