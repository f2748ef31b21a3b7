"""`reflexion memory consolidate`."""

import asyncio
import json
from typing import Any

from rich.console import Console

from reflexion.cli.options import NOT_PASSED, PASSED, UNREACHABLE
from reflexion.graphs.consolidate import Consolidation, Proposal, consolidate
from reflexion.graphs.installation import read_installation
from reflexion.nodes import make_settings


def consolidate_lessons(
    settings: dict[str, Any], installation: dict[str, Any], *, apply: bool, limit: int, as_json: bool
) -> int:
    """Consolidate, print what is proposed or was done, and return the exit code."""
    installed = read_installation(**installation)
    done = asyncio.run(
        consolidate(
            make_settings(**settings),
            apply=apply,
            limit=limit,
            connection=installed,
            database_url=installed.database_url,
            prompts=installed.prompts,
        )
    )
    if as_json:
        print(json.dumps(done.as_json(), ensure_ascii=False, indent=2))  # noqa: T201
    else:
        console = Console(width=None if Console().is_terminal else 10_000)
        for line in _lines(done):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return {"": PASSED, "model_error": UNREACHABLE}.get(done.stop_reason, NOT_PASSED)


def _lines(done: Consolidation) -> list[str]:
    lines = [line for proposal in done.proposals for line in _diff(proposal)]
    lines += [f"a group of lessons came to nothing: {problem}" for problem in done.failed]
    if done.stop_reason:
        lines.append(f"ended early: {done.stop_detail}")
    sound = sum(not each.refused for each in done.proposals)
    cost = done.usage.as_json()["cost_usd"]
    spent = f"{done.usage.requests} requests, {done.usage.tokens} tokens" + (f", {cost} USD" if cost else "")
    lines.append(f"{done.groups} groups of alike lessons looked at: {sound} changes, {spent}")
    if done.applied and sound:
        lines.append(f"to undo it all: reflexion memory forget --run {done.consolidation_id}")
    elif sound:
        lines.append("nothing was changed: --apply asks again and does it")
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
