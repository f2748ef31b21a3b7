"""`reflexion doctor`."""

import asyncio
import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from langchain_core.messages import HumanMessage

from reflexion.cli.errors import EXPECTED, one_line
from reflexion.cli.options import PASSED, UNREACHABLE, WRONG_USE
from reflexion.graphs.installation import Installation, read_installation
from reflexion.memory import open_persistence
from reflexion.models import (
    CONFIGURATION,
    ROLES,
    Meter,
    ModelError,
    Models,
    Role,
    Seam,
    Structure,
    Usage,
    ask_structured,
    object_of,
    strict_schema,
)
from reflexion.models.embedded import installed_model, shutdown_server
from reflexion.models.embedding import EmbeddingError, MiniLM, find_weights
from reflexion.nodes import Settings, make_settings
from reflexion.prompts import PromptBook
from reflexion.sandbox import available_layers, missing_layers

_PROBE = Structure("probe", strict_schema(ok={"type": "boolean"}))
_QUESTION = 'Reply with this JSON object and nothing else: {"ok": true}'


def stop_server() -> int:
    """End the embedded model's server."""
    print(f"ended {shutdown_server()} server(s)")  # noqa: T201
    return PASSED


def examine(given: dict[str, Any], *, model: str | None, as_json: bool) -> int:
    """Look at everything that a run needs, and say how it is; returns the exit code."""
    installation = read_installation(**given)
    settings = make_settings() if model is None else make_settings(model=model)
    report = asyncio.run(_examine(installation, settings))
    print(json.dumps(report, indent=2, ensure_ascii=False) if as_json else as_text(report))  # noqa: T201
    kinds = {role["error_kind"] for role in report["roles"].values() if not role["ok"]}
    if "error" in report["database"] or kinds & {*CONFIGURATION, "configuration"}:
        return WRONG_USE
    return UNREACHABLE if kinds else PASSED


async def _examine(installation: Installation, settings: Settings) -> dict[str, Any]:
    await asyncio.to_thread(PromptBook.load, installation.prompts)
    models = Models(installation)
    try:
        roles = {role: await _ask(models, role, settings) for role in ROLES}
        guards = await _guards(models.seam)
    finally:
        await models.aclose()
    return {
        "version": version("reflexion-graph"),
        "python": platform.python_version(),
        "endpoint": installation.base_url or None,
        "api_key": "set" if installation.api_key.get_secret_value() else "not set",
        "embedded_model": installed_model(),
        "roles": roles,
        "guards": guards,
        "database": await _database(installation),
        "embeddings": await asyncio.to_thread(_embeddings, installation),
        "sandbox": {"layers": list(available_layers()), "missing": list(missing_layers())},
        "settings": settings.model_dump(mode="json"),
    }


async def _ask(models: Models, role: Role, settings: Settings) -> dict[str, Any]:
    """One cheap call."""
    try:
        client = models.client(role, settings.model_for(role))
    except EXPECTED as error:
        return {"ok": False, "error_kind": "configuration", "error": one_line(error)}
    meter = Meter(role=role, attempt=0)
    about: dict[str, Any] = {"model": client.name, "address": client.base_url or "this machine"}
    try:
        read = await ask_structured(client, [HumanMessage(_QUESTION)], meter, _PROBE, object_of)
    except ModelError as error:
        return about | {"ok": False, "error_kind": error.kind, "error": str(error)}
    usage = Usage.of(meter.calls)
    return about | {
        "ok": True,
        "answers_in_json": read.value is not None,
        "asks_for_json_by": client.capabilities.rung,
        "not_supported": list(client.capabilities.learned),
        "reports_usage": not usage.estimated,
        "price_known": client.has_price(),
        "latency_s": meter.calls[-1]["latency_s"],
        "tokens": usage.tokens,
    }


async def _guards(seam: Seam) -> dict[str, Any]:
    """The circuits and limits that the calls went through; with a Redis, as all its processes have left them."""
    try:
        circuits = [asdict(circuit) for circuit in await seam.breaker.state()]
    except Exception as error:  # noqa: BLE001 - whatever its client raises, the rest of the report is still wanted
        return {"error": f"the Redis of REFLEXION_REDIS_URL cannot be used: {type(error).__name__}"}
    limits = [asdict(limit) for limit in seam.limits.state()] if seam.limits else []
    return {"circuits": circuits, "limits": limits, "cache": seam.cache is not None}


async def _database(installation: Installation) -> dict[str, Any]:
    try:
        async with open_persistence(installation.database_url, embeddings=installation.embeds) as persistence:
            return {
                "url": persistence.url,
                "durable": persistence.durable,
                "bytes": await persistence.size_bytes(),
                "lacks": getattr(persistence.store, "lacks", ""),
            }
    except EXPECTED as error:
        return {"error": one_line(error)}


def _embeddings(installation: Installation) -> dict[str, Any]:
    """What finds the lessons of similar tasks besides their words, tried out."""
    if not installation.embeds:
        return {"model": None}
    try:
        model = MiniLM(find_weights())
        return {"model": model.name, "dimensions": len(model.embed_query(_QUESTION))}
    except EmbeddingError as error:
        return {"model": None, "error": one_line(error)}


def as_text(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"reflexion {report['version']}, Python {report['python']}",
        f"endpoint   {report['endpoint'] or 'none configured: OpenAI where a model and a key are set, else embedded'}",
        f"key        {report['api_key']}",
        f"embedded   {report['embedded_model'] or 'not installed'}",
    ]
    for role, found in report["roles"].items():
        where = f"{found['model']} at {found['address']}" if "model" in found else "no model"
        if found["ok"]:
            lacks = f"; lacks: {', '.join(found['not_supported'])}" if found["not_supported"] else ""
            usage = "reports usage" if found["reports_usage"] else "reports no usage (tokens will be estimated)"
            price = "price known" if found["price_known"] else "price unknown"
            state = f"ok in {found['latency_s']:.2f} s, JSON by {found['asks_for_json_by']}, {usage}, {price}{lacks}"
        else:
            state = f"FAILED ({found['error_kind']}): {found['error']}"
        lines.append(f"{role:<10} {where}: {state}")
    guards = report["guards"]
    lines += [f"guards     {guards['error']}"] if "error" in guards else []
    lines += [
        f"circuit    {c['model']}: {c['state']}" + (f", {c['why']}" if c["state"] != "closed" else "")
        for c in guards.get("circuits", [])
    ]
    lines += [f"limit      {_limit_text(limit)}" for limit in guards.get("limits", [])]
    database = report["database"]
    size = f", {database['bytes']:,} bytes" if database.get("bytes") is not None else ""
    shown = database.get("error") or f"{database['url']}{size}{'' if database['durable'] else ' (keeps nothing)'}"
    lines.append(f"database   {shown}")
    lines.append(f"embeddings {_embeddings_text(report['embeddings'])}")
    if database.get("lacks"):
        lines.append(f"           not in this database, where words alone count: {database['lacks']}")
    sandbox = report["sandbox"]
    missing = f"; missing here: {', '.join(sandbox['missing'])}" if sandbox["missing"] else ""
    lines.append(f"sandbox    {', '.join(sandbox['layers'])}{missing}")
    return "\n".join(lines)


def _embeddings_text(found: dict[str, Any]) -> str:
    if found["model"]:
        return f"{found['model']}, {found['dimensions']} dimensions"
    why = f"FAILED: {found['error']}" if "error" in found else "none"
    return f"{why}; lessons are found by their words alone"


def _limit_text(limit: dict[str, Any]) -> str:
    left = [
        f"{limit[name]:,.0f} {name.removesuffix('_left')}"
        for name in ("requests_left", "tokens_left")
        if limit[name] is not None
    ]
    return f"{limit['model']}: {', '.join([*left, str(limit['in_flight']) + ' in flight'])} left now"
