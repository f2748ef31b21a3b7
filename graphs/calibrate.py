"""Runs an evaluator over labelled examples, as the loop would, and measures its verdicts."""

import asyncio
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reflexion.evaluators import Attempt, Evaluation, Evaluator
from reflexion.evaluators.calibration import calibration_of
from reflexion.evaluators.passing import passes
from reflexion.graphs.build import Model, make_kit
from reflexion.graphs.calibration_report import CalibrationReport, FailedExample, Stop
from reflexion.graphs.installation import read_installation
from reflexion.graphs.labelled import Example
from reflexion.graphs.verdict_file import Verdict, VerdictFile
from reflexion.memory import open_persistence
from reflexion.models import (
    Budget,
    BudgetExhausted,
    ConnectionSettings,
    DeadlineExceeded,
    Ledger,
    LedgerStore,
    Meter,
    ModelConfigurationError,
    ModelError,
    Usage,
    scrub,
)
from reflexion.models.embedded import EmbeddedModelError
from reflexion.nodes import ConfigurationError, Kit, Settings, make_settings
from reflexion.nodes.degradation import Measures
from reflexion.nodes.evaluator import EvaluatorReads, choose, judge
from reflexion.nodes.recall import TaskSpec
from reflexion.nodes.turn import Turn

_HOPELESS = frozenset({"auth", "billing", "circuit_open", "not_found"})
"""Kinds of error that every further example would meet as well."""
_LIMITS = ("threshold", "deadline_s", "budget_", "thread_budget_")
"""Beginnings of the names of settings that change no verdict."""


async def calibrate(
    examples: Sequence[Example],
    settings: Settings | None = None,
    *,
    evaluator: Evaluator | Callable[..., Any] | None = None,
    model: Model | None = None,
    connection: ConnectionSettings | None = None,
    database_url: str | None = None,
    prompts: Path | None = None,
    concurrency: int = 4,
    out: Path | None = None,
    on_verdict: Callable[[Verdict | FailedExample], None] | None = None,
    stop: asyncio.Event | None = None,
) -> CalibrationReport:
    """Let an evaluator judge answers of which it is known whether they are right, and say how far it can be trusted.

    A budget and a deadline of the settings hold for the calibration as a whole. One example that fails costs no other.

    Args:
        examples: see `read_examples`.
        settings: threshold, models, limits; None reads `REFLEXION_*` and `.env`.
        evaluator: what is calibrated: an evaluator or a function; None for what a run would choose by the task.
        model: see `build_graph`.
        connection: see `open_reflexion`.
        database_url: where the ledger is kept; see `open_reflexion`.
        prompts: see `open_reflexion`.
        concurrency: how many examples are judged at once.
        out: a JSONL file to which verdicts are appended as they come; those that it has already are not paid for again.
            Where an evaluator of your own has changed, name another file.
        on_verdict: called with each verdict, reused ones too, and with each example that failed.
        stop: set it to end early with what is finished.

    Raises:
        ConfigurationError: an argument or a setting cannot be used; nothing has been paid for.
        ModelConfigurationError: an example needs a model and there is none; nothing has been paid for.
        TypeError: the evaluator is none.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency {concurrency}: at least one example has to be judged at a time")
    installation = read_installation()
    settings = settings or make_settings()
    connection = connection or installation
    kit = await asyncio.to_thread(
        make_kit, model, evaluator, None, connection, prompts or installation.prompts, settings
    )
    try:
        with VerdictFile(out) as file:
            url = database_url or installation.database_url
            async with open_persistence(url, embeddings=False) as persistence:
                calibrator = _Calibrator(kit, settings, connection.base_url, persistence.ledger, file, on_verdict)
                await calibrator.judge(examples, concurrency, stop or asyncio.Event())
                lines = await persistence.ledger.lines(batch_id=calibrator.id)
        return calibrator.report(examples, Usage.of(lines))
    finally:
        await kit.models.aclose()


@dataclass(frozen=True, slots=True)
class _Work:
    """One example that is to be judged, and by what."""

    place: int
    """Among the examples, from 0."""
    example: Example
    key: str
    evaluator: str
    """Its name."""
    turn: Turn


class _Calibrator:
    """One calibration at work."""

    def __init__(
        self,
        kit: Kit,
        settings: Settings,
        endpoint: str | None,
        store: LedgerStore,
        file: VerdictFile,
        on_verdict: Callable[[Verdict | FailedExample], None] | None,
    ) -> None:
        self.id = str(uuid.uuid4())
        self._kit = kit
        self._settings = settings
        self._endpoint = endpoint
        self._store = store
        self._file = file
        self._tell = on_verdict or (lambda _: None)
        self._began = time.monotonic()
        self._budget = Budget(
            "calibration",
            usd=settings.budget_usd,
            tokens=settings.budget_tokens,
            requests=settings.budget_requests,
            patient=True,
        )
        self._verdicts: dict[int, Verdict] = {}
        self._failed: list[FailedExample] = []
        self._reused = 0
        self._stop: tuple[Stop, str] = ("", "")

    async def judge(self, examples: Sequence[Example], concurrency: int, stop: asyncio.Event) -> None:
        """Judge what the file does not have yet, so many at a time, until all is done or there is a reason to stop."""
        work = iter(self._prepared(examples))
        workers = [asyncio.create_task(self._work_off(work)) for _ in range(concurrency)]
        watcher = asyncio.create_task(self._watch(stop, workers))
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in (watcher, *workers):
                task.cancel()
            await asyncio.gather(watcher, *workers, return_exceptions=True)
        for worker in workers:
            with suppress(asyncio.CancelledError):
                worker.result()

    def report(self, examples: Sequence[Example], usage: Usage) -> CalibrationReport:
        """What has been found."""
        verdicts = tuple(verdict for _, verdict in sorted(self._verdicts.items()))
        return CalibrationReport(
            calibration=calibration_of([(v.score, v.truth) for v in verdicts], self._settings.threshold),
            verdicts=verdicts,
            failed=tuple(self._failed),
            examples=len(examples),
            reused=self._reused,
            stop_reason=self._stop[0],
            stop_detail=self._stop[1],
            usage=usage,
            duration_s=round(time.monotonic() - self._began, 3),
            calibration_id=self.id,
        )

    def _prepared(self, examples: Sequence[Example]) -> list[_Work]:
        """What is left to do. All evaluators are chosen first: a missing model shows before anything is paid for."""
        prepared = []
        judge_id = self._judge_id()
        for place, example in enumerate(examples):
            turn = self._turn()
            evaluator = _name(self._kit.evaluator or choose(example.task, turn))
            key = _digest(example.key, judge_id)
            if (known := self._file.get(key)) is None:
                prepared.append(_Work(place, example, key, evaluator, turn))
                continue
            # Label and threshold may have changed since; neither makes another verdict.
            passed = passes(known.score, self._settings.threshold)
            verdict = replace(known, id=example.id, truth=example.truth, passed=passed)
            self._verdicts[place] = verdict
            self._reused += 1
            self._tell(verdict)
        return prepared

    def _judge_id(self) -> str:
        """The same for what judges alike: evaluator, model, endpoint, prompts and settings are the same."""
        kit, lang = self._kit, self._settings.lang
        name, settings = "", self._settings.model_dump(mode="json")
        with suppress(ModelConfigurationError, EmbeddedModelError):  # where none is needed there need not be one
            name = self._turn().client("evaluator").name
        return _digest(
            _name(kit.evaluator),
            name,
            self._endpoint,
            {role: dict(prompt.sections) for (role, of), prompt in kit.prompts.prompts.items() if of == lang},
            {field: value for field, value in settings.items() if not field.startswith(_LIMITS)},
        )

    def _turn(self) -> Turn:
        limit_s = self._settings.deadline_s
        return Turn(
            kit=self._kit,
            settings=self._settings,
            meter=Meter(
                role="evaluator",
                attempt=1,
                run_id=str(uuid.uuid4()),
                batch_id=self.id,
                budget=self._budget,
                ledger=Ledger(self._store),
                deadline=None if limit_s is None else self._began + limit_s,
            ),
            emit=lambda event, **fields: None,
            store=None,
            thread_id="",
            step_id="",
            measures=Measures(),
            prompts=self._kit.prompts.instructed(self._settings.own_prompts()),
        )

    async def _watch(self, stop: asyncio.Event, workers: Sequence[asyncio.Task[None]]) -> None:
        await stop.wait()
        self._stop = ("cancelled", "it was interrupted")
        for worker in workers:
            worker.cancel()

    async def _work_off(self, work: Iterator[_Work]) -> None:
        """Judge one example after another; once there is a reason to stop, what is at work is still finished."""
        for item in work:
            if self._stop[0]:
                return
            try:
                await self._judge(item)
            except BudgetExhausted as error:
                self._end("budget", error)
            except DeadlineExceeded as error:
                self._end("deadline", error)
            except ModelError as error:
                failed = FailedExample(id=item.example.id, kind=error.kind, error=str(error))
                self._failed.append(failed)
                self._tell(failed)
                if error.kind in _HOPELESS:
                    self._end("model_error", error)

    def _end(self, reason: Stop, error: Exception) -> None:
        if not self._stop[0]:
            self._stop = (reason, str(error))

    async def _judge(self, work: _Work) -> None:
        example = work.example
        attempt = Attempt(number=1, answer=example.answer, plan="", style="first")
        began = time.monotonic()
        found = await self._evaluation(work, attempt)
        verdict = Verdict(
            id=example.id,
            key=work.key,
            truth=example.truth,
            score=None if found.score is None else float(found.score),
            passed=passes(found.score, self._settings.threshold),
            feedback=str(found.feedback),
            evaluator=str(found.evaluator),
            advisory=bool(found.advisory),
            duration_s=round(time.monotonic() - began, 3),
        )
        self._verdicts[work.place] = verdict
        self._file.add(verdict)
        self._tell(verdict)

    async def _evaluation(self, work: _Work, attempt: Attempt) -> Evaluation:
        task = work.example.task
        spec = TaskSpec(
            text=task.text, tests=task.tests, expect=task.expect, criteria=list(task.criteria), from_messages=False
        )
        state = EvaluatorReads(spec=spec, attempts=[attempt], own_tests=None)
        try:
            found, _ = await work.turn.within_deadline(lambda: judge(state, work.turn))
        except (ModelError, BudgetExhausted, DeadlineExceeded):
            raise
        except Exception as error:  # noqa: BLE001 - it gave no verdict on this one, and may on the others
            reason = f"{work.evaluator} failed: {type(error).__name__}: {error}"
            return Evaluation(score=None, feedback=scrub(reason), evaluator=work.evaluator)
        return found


def _name(evaluator: Evaluator | None) -> str:
    return str(getattr(evaluator, "name", type(evaluator).__name__))


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
