"""What a model would do with lessons: kept as JSON, looked at by people, and then done as it was shown."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from reflexion.graphs.installation import read_installation
from reflexion.memory import Change, KnownLesson, Memory, check_namespace, open_memory, refusal
from reflexion.memory.records import Operation
from reflexion.models import Usage
from reflexion.nodes import ConfigurationError

Stop = Literal["", "budget", "deadline", "model_error"]
"""Why a consolidation ended before its last group; empty where it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One operation that the model wants, and what came of it."""

    operation: Operation
    before: dict[str, str]
    """The lessons that it is about: their texts by id."""
    text: str
    """Of the lesson that comes of it; empty for RETIRE."""
    lesson_id: str
    """Of that lesson; empty where there is none."""
    why: str
    refused: str = ""
    """Why it is not done; empty where nothing speaks against it."""
    decision_id: str = ""
    """`forget_run` undoes it; empty where nothing was done."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """What a model would do with alike lessons, and what asking it has used."""

    consolidation_id: str
    """The ledger's lines have it as their `batch_id`; once it is applied, `forget_run` with it undoes everything."""
    namespace: str
    groups: int
    """Of lessons that were shown."""
    proposals: tuple[Proposal, ...]
    failed: tuple[str, ...]
    """Why a group came to nothing."""
    stop_reason: Stop
    stop_detail: str
    usage: Usage

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, of which `apply_consolidation` takes what it needs."""
        return {
            "consolidation_id": self.consolidation_id,
            "namespace": self.namespace,
            "groups": self.groups,
            "proposals": [proposal.as_json() for proposal in self.proposals],
            "failed": list(self.failed),
            "stop_reason": self.stop_reason,
            "stop_detail": self.stop_detail,
            "usage": self.usage.as_json(),
        }


class _Kept(BaseModel):
    model_config = ConfigDict(extra="ignore")

    consolidation_id: UUID
    namespace: Annotated[str, AfterValidator(check_namespace)]
    proposals: list[Proposal]


async def apply_consolidation(
    proposed: Consolidation | Mapping[str, Any], *, database_url: str | None = None
) -> tuple[Proposal, ...]:
    """Do what was proposed, exactly so and without a model; what does not fit the lessons any more is refused.

    Nothing is deleted: what is merged, reworded or retired counts as retired by a record of its own, and is back when
    that is forgotten.

    Args:
        proposed: a consolidation, or its JSON.
        database_url: see `open_reflexion`.

    Returns:
        The proposals, each with its decision or with why it was not done.

    Raises:
        ConfigurationError: this is no consolidation; nothing was done.
    """
    try:
        kept = _Kept.model_validate(proposed.as_json() if isinstance(proposed, Consolidation) else proposed)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ConfigurationError(f"no consolidation: {where}: {problem['msg']}") from error
    installation = await asyncio.to_thread(read_installation)
    url = database_url or installation.database_url
    async with open_memory(url, kept.namespace, embeddings=installation.embeds) as memory:
        return tuple(
            [
                await _applied(memory, each, f"{kept.consolidation_id}.{number}")
                for number, each in enumerate(kept.proposals, 1)
            ]
        )


async def _applied(memory: Memory, proposal: Proposal, decision_id: str) -> Proposal:
    if proposal.refused:
        return proposal
    known = await memory.of_their_tasks(proposal.before)
    change = Change(
        proposal.operation, tuple(known[key] for key in proposal.before if key in known), proposal.text, proposal.why
    )
    if refused := _misfit(proposal, known) or refusal(change, _others(proposal, known)):
        return replace(proposal, refused=refused)
    if (change.made["id"] if change.made else "") != proposal.lesson_id:
        return replace(proposal, refused="what would come of it now is not what was shown")
    await memory.decide(change, decision_id)
    return replace(proposal, decision_id=decision_id)


def _misfit(proposal: Proposal, known: Mapping[str, KnownLesson]) -> str:
    for key in proposal.before:
        if key not in known:
            return f"{key} is not there any more"
        if not known[key].usable:
            return f"{key} is not in use any more"
    return ""


def _others(proposal: Proposal, known: Mapping[str, KnownLesson]) -> list[KnownLesson]:
    return [each for key, each in known.items() if key not in proposal.before and each.usable]
