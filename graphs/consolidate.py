"""Shows alike lessons to a model, which says what to merge, reword, add and retire; nothing of that is done here."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from reflexion.graphs.build import Model, make_kit
from reflexion.graphs.installation import read_installation
from reflexion.graphs.proposals import Consolidation, Proposal, Stop
from reflexion.memory import Change, KnownLesson, Memory, open_persistence, refusal
from reflexion.memory.quality import LONGEST
from reflexion.memory.records import Operation
from reflexion.models import (
    Budget,
    BudgetExhausted,
    ConnectionSettings,
    DeadlineExceeded,
    Ledger,
    LedgerStore,
    Meter,
    ModelError,
    Reply,
    Structure,
    Usage,
    ask_structured,
    object_of,
    strict_schema,
)
from reflexion.nodes import Kit, Settings, make_settings
from reflexion.nodes.degradation import Measures
from reflexion.nodes.turn import Turn
from reflexion.prompts import Marks
from reflexion.prompts.marks import one_line

LONGEST_TASK_SHOWN = 1_000
"""Characters of a task that the model reads."""

_TEXT: dict[str, Any] = {"type": "string"}
_OPERATION = strict_schema(
    op={"type": "string", "enum": ["ADD", "EDIT", "MERGE", "RETIRE"]},
    lessons={"type": "array", "items": _TEXT},
    text=_TEXT,
    why=_TEXT,
)
STRUCTURE = Structure("consolidation", strict_schema(operations={"type": "array", "items": _OPERATION}))


class ProposedOperation(BaseModel):
    """One operation as the model answers it."""

    model_config = ConfigDict(extra="ignore")

    op: Operation
    lessons: list[str] = Field(min_length=1)
    """As they were shown: `L1`, `L2` and so on."""
    text: str = ""
    why: str = ""

    @field_validator("op", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.strip().upper() if isinstance(value, str) else value

    @field_validator("text", "why", mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        return "" if value is None else " ".join(value.split()) if isinstance(value, str) else value


class ConsolidatorReply(BaseModel):
    """What a consolidator answers."""

    model_config = ConfigDict(extra="ignore")

    operations: list[ProposedOperation]


async def consolidate(
    settings: Settings | None = None,
    *,
    limit: int = 20,
    model: Model | None = None,
    connection: ConnectionSettings | None = None,
    database_url: str | None = None,
    prompts: Path | None = None,
) -> Consolidation:
    """Let the reflector's model look at lessons of the same task, and of very alike ones, and say how to tidy them up.

    Nothing is changed: `apply_consolidation` does what was proposed. A budget and a deadline of the settings hold for
    all groups together.

    Args:
        settings: namespace, models, limits; None reads `REFLEXION_*` and `.env`.
        limit: groups that are shown at the most.
        model: see `build_graph`.
        connection: see `open_reflexion`.
        database_url: see `open_reflexion`.
        prompts: see `open_reflexion`.

    Raises:
        ConfigurationError: an argument or a setting cannot be used; nothing has been paid for.
        ModelConfigurationError: there is no model; nothing has been paid for.
    """
    installation = read_installation()
    settings = settings or make_settings()
    kit = await asyncio.to_thread(
        make_kit, model, None, None, connection or installation, prompts or installation.prompts, settings
    )
    try:
        url = database_url or installation.database_url
        async with open_persistence(url, embeddings=installation.embeds) as persistence:
            memory = Memory(persistence.store, settings.namespace)
            consolidator = _Consolidator(kit, settings, persistence.ledger)
            groups = await memory.alike(limit)
            await consolidator.work_off(groups)
            lines = await persistence.ledger.lines(batch_id=consolidator.id)
        return consolidator.report(len(groups), Usage.of(lines))
    finally:
        await kit.models.aclose()


class _Consolidator:
    """One consolidation at work."""

    def __init__(self, kit: Kit, settings: Settings, store: LedgerStore) -> None:
        self.id = str(uuid.uuid4())
        self._namespace = settings.namespace
        self._proposals: list[Proposal] = []
        self._failed: list[str] = []
        self._stop: tuple[Stop, str] = ("", "")
        self._turn = _turn(kit, settings, store, self.id)

    async def work_off(self, groups: Sequence[Sequence[KnownLesson]]) -> None:
        """One group after another, until there is a reason to stop."""
        for group in groups:
            try:
                await self._work(group)
            except BudgetExhausted as error:
                self._stop = ("budget", str(error))
            except DeadlineExceeded as error:
                self._stop = ("deadline", str(error))
            except ModelError as error:
                self._stop = ("model_error", str(error))
            if self._stop[0]:
                return

    def report(self, groups: int, usage: Usage) -> Consolidation:
        """What came of it."""
        return Consolidation(
            consolidation_id=self.id,
            namespace=self._namespace,
            groups=groups,
            proposals=tuple(self._proposals),
            failed=tuple(self._failed),
            stop_reason=self._stop[0],
            stop_detail=self._stop[1],
            usage=usage,
        )

    async def _work(self, group: Sequence[KnownLesson]) -> None:
        shown = {f"L{number}": each for number, each in enumerate(group, 1)}
        messages = self._turn.prompt("consolidator").messages(lessons=Marks().around("lessons", _listed(shown)))
        read = await ask_structured(self._turn.client("reflector"), messages, self._turn.meter, STRUCTURE, _parse)
        if read.value is None:
            self._failed.append(read.problem)
            return
        left = dict(shown)
        for wanted in read.value.operations:
            self._propose(wanted, shown, left)

    def _propose(self, wanted: ProposedOperation, shown: dict[str, KnownLesson], left: dict[str, KnownLesson]) -> None:
        """Note one operation, or why it must not be done; what it changes is not left for the others of its group."""
        names = [name.strip() for name in dict.fromkeys(wanted.lessons)]
        named = tuple(shown[name] for name in names if name in shown)
        change = Change(wanted.op, named, "" if wanted.op == "RETIRE" else wanted.text, wanted.why)
        if unknown := [name for name in names if name not in shown]:
            refused = f"there is no lesson {', '.join(unknown)}"
        elif taken := [name for name in names if name not in left]:
            refused = f"{', '.join(taken)}: another operation has changed it"
        else:
            refused = refusal(change, [each for name, each in left.items() if name not in names])
        for name in names if not refused and wanted.op != "ADD" else ():
            del left[name]
        made = None if refused else change.made
        self._proposals.append(
            Proposal(
                operation=wanted.op,
                before={each.id: each.lesson["text"] for each in named},
                text=change.text,
                lesson_id=made["id"] if made else "",
                why=wanted.why,
                refused=refused,
            )
        )


def _turn(kit: Kit, settings: Settings, store: LedgerStore, batch_id: str) -> Turn:
    budget = Budget(
        "consolidation", usd=settings.budget_usd, tokens=settings.budget_tokens, requests=settings.budget_requests
    )
    return Turn(
        kit=kit,
        settings=settings,
        meter=Meter(
            role="consolidator",
            attempt=0,
            run_id=batch_id,
            batch_id=batch_id,
            budget=budget,
            ledger=Ledger(store),
            deadline=None if settings.deadline_s is None else time.monotonic() + settings.deadline_s,
        ),
        emit=lambda event, **fields: None,
        store=None,
        thread_id="",
        step_id="",
        measures=Measures(),
        prompts=kit.prompts,
    )


def _listed(shown: dict[str, KnownLesson]) -> str:
    """The lessons under their tasks, each with what is known of it."""
    tasks = dict.fromkeys(each.lesson["task"] for each in shown.values())
    parts = []
    for task in tasks:
        parts.append(f"Task: {one_line(task, LONGEST_TASK_SHOWN)}")
        for name, each in shown.items():
            if each.lesson["task"] == task:
                worth = f"{each.state}, {each.passed.count} of {each.used} uses passed, {each.seen} runs came to it"
                parts.append(f"{name} ({worth}): {one_line(each.lesson['text'], LONGEST)}")
    return "\n".join(parts)


def _parse(reply: Reply) -> ConsolidatorReply:
    return ConsolidatorReply.model_validate(object_of(reply))
