"""`reflexion memory consolidate`."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from reflexion.cli.options import NOT_PASSED, PASSED, UNREACHABLE, given
from reflexion.graphs import Consolidation, Proposal, apply_consolidation, consolidate
from reflexion.graphs.installation import read_installation
from reflexion.nodes import ConfigurationError, make_settings


def consolidate_lessons(
    settings: dict[str, Any], installation: dict[str, Any], *, out: Path | None, limit: int, as_json: bool
) -> int:
    """Ask, print what is proposed, and return the exit code."""
    installed = read_installation(**installation)
    if out is not None:
        # Before anything is paid.
        _write(out, "", mode="a")
    done = asyncio.run(
        consolidate(
            make_settings(**settings),
            limit=limit,
            connection=installed,
            database_url=installed.database_url,
            prompts=installed.prompts,
        )
    )
    text = json.dumps(done.as_json(), ensure_ascii=False, indent=2)
    if out is not None:
        _write(out, f"{text}\n")
    _show(text if as_json else _lines(done, out))
    return {"": PASSED, "model_error": UNREACHABLE}.get(done.stop_reason, NOT_PASSED)


def apply_file(file: Path, others: Mapping[str, Any], database: str | None, *, as_json: bool) -> int:
    """Do what a file says, print what was done, and return the exit code: 1 where something was refused only now."""
    try:
        proposed = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from error
    if not isinstance(proposed, dict) or not isinstance(proposed.get("proposals"), list):
        raise ConfigurationError(f"{file}: this is no file that --out has written")
    if wrong := sorted(name for name in others if (name, others[name]) != ("namespace", proposed.get("namespace"))):
        option = wrong[0].replace("_", "-")
        raise ConfigurationError(f"--{option} and --apply: what is done, and where, is what the file says")
    installed = read_installation(**given(database_url=database))
    done = asyncio.run(apply_consolidation(proposed, database_url=installed.database_url))
    pairs = zip(proposed["proposals"], done, strict=True)
    refused = sum(bool(now.refused) and not then.get("refused") for then, now in pairs)
    undo = proposed["consolidation_id"]
    if as_json:
        found = {"consolidation_id": undo, "proposals": [each.as_json() for each in done]}
        _show(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        changes = sum(bool(each.decision_id) for each in done)
        lines = [line for proposal in done for line in _diff(proposal)]
        lines.append(f"{changes} changes made" + (f", {refused} that do not fit any more refused" if refused else ""))
        lines += [f"to undo them all: reflexion memory forget --run {undo}"] if changes else []
        _show(lines)
    return NOT_PASSED if refused else PASSED


def _write(file: Path, text: str, *, mode: Literal["w", "a"] = "w") -> None:
    try:
        with file.open(mode, encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written: {error}") from error


def _show(found: str | Sequence[str]) -> None:
    if isinstance(found, str):
        print(found)  # noqa: T201
        return
    console = Console(width=None if Console().is_terminal else 10_000)
    for line in found:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(done: Consolidation, out: Path | None) -> list[str]:
    lines = [line for proposal in done.proposals for line in _diff(proposal)]
    lines += [f"a group of lessons came to nothing: {problem}" for problem in done.failed]
    if done.stop_reason:
        lines.append(f"ended early: {done.stop_detail}")
    sound = sum(not each.refused for each in done.proposals)
    cost = done.usage.as_json()["cost_usd"]
    spent = f"{done.usage.requests} requests, {done.usage.tokens} tokens" + (f", {cost} USD" if cost else "")
    lines.append(f"{done.groups} groups of alike lessons looked at: {sound} changes, {spent}")
    if sound:
        how = "--out FILE keeps this, and --apply FILE does it" if out is None else f"--apply {out} does this"
        lines.append(f"nothing was changed: {how}")
    return lines


def _diff(proposal: Proposal) -> list[str]:
    lines = [f"{proposal.operation}: {proposal.why}" + (f" [{proposal.decision_id}]" if proposal.decision_id else "")]
    kept = proposal.operation == "ADD"
    lines += [
        f"{' ' if kept or key == proposal.lesson_id else '-'} {key} {text}" for key, text in proposal.before.items()
    ]
    if proposal.text and proposal.lesson_id not in proposal.before:
        lines.append(f"+ {proposal.lesson_id} {proposal.text}")
    if proposal.refused:
        lines.append(f"  refused: {proposal.refused}")
    return [*lines, ""]
