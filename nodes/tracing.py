"""What a step adds to its trace: what it worked on, for which run, and the scores as feedback.

It works wherever the graph runs, as it asks the step that is running who traces it.
"""

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

from langsmith import get_current_run_tree
from langsmith.run_trees import RunTree

from reflexion.evaluators import Attempt
from reflexion.evaluators.langsmith import criterion_keys
from reflexion.models import Meter, scrub
from reflexion.models.trace_client import TraceClient, need_no_project_id
from reflexion.models.tracing import add_metadata, tracers_here

log = logging.getLogger(__name__)

_FEEDBACK_IDS = uuid.UUID("8d6f0b62-95ec-5b0b-9d4e-3ce6a5a0b7c1")
_TOLD = "scored_attempts"
"""In a run's metadata: the attempts whose scores were sent from within this trace."""


def trace_step(name: str, state: Mapping[str, Any], delta: Mapping[str, Any], threshold: float, meter: Meter) -> None:
    """Say in the step's trace what it was about; at the run's end also how it ended.

    Args:
        name: of the node.
        state: what it was given.
        delta: what it gives back.
        threshold: the score that an attempt needs.
        meter: whose step it is.
    """
    step = get_current_run_tree()
    if step is None:
        return
    try:
        _trace_step(step, name, {**state, **delta}, delta, threshold, meter)
    except Exception as error:  # noqa: BLE001 - a run does not fail for its trace
        _warn_once(f"traces are incomplete: {type(error).__name__}: {scrub(str(error))}")


def _trace_step(
    step: RunTree, name: str, after: Mapping[str, Any], delta: Mapping[str, Any], threshold: float, meter: Meter
) -> None:
    of_run = {
        "run_id": after.get("run_id"),
        "thread_id": meter.thread_id,
        "threshold": threshold,
        "task_id": task_id(after["spec"]) if "spec" in after else None,
    }
    add_metadata(step, {**of_run, "role": name, "attempt": meter.attempt or None})
    run = _run_around(step)
    add_metadata(run, of_run)
    if name in {"evaluator", "review"}:
        for judged in delta.get("attempts", ()):
            _tell_of_attempt(step, run, judged, after["run_id"])
    if name == "remember":
        _tell_of_run(step, run, after)


def task_id(spec: Mapping[str, Any]) -> str:
    """The same for the same task, whoever runs it and when: 16 hexadecimal digits."""
    task = [spec[name] for name in ("text", "tests", "expect", "criteria")]
    return hashlib.sha256(json.dumps(task, sort_keys=True, default=str).encode()).hexdigest()[:16]


@cache
def _warn_once(message: str) -> None:
    log.warning(message)


def _run_around(step: RunTree) -> RunTree:
    """The traced run of the graph; the step itself where that is not to be found."""
    for tracer in tracers_here():
        if run := tracer.run_map.get(str(step.parent_run_id)):
            return run
    return step


def _tell_of_attempt(on: RunTree, run: RunTree, attempt: Mapping[str, Any], run_id: str) -> None:
    """Send the scores of an attempt as feedback on a traced run.

    Args:
        on: the traced run that the scores belong to.
        run: the graph's.
        attempt: judged.
        run_id: of the Reflexion run, which outlives traces: what is sent twice has one id.
    """
    add_metadata(run, {_TOLD: [*run.metadata.get(_TOLD, ()), attempt["number"]]})
    evaluator = attempt.get("evaluator", "")
    send = partial(_send, on, f"{run_id} {attempt['number']} {evaluator}", evaluator=evaluator)
    send("score", attempt.get("score"), attempt.get("feedback"))
    criteria = attempt.get("criteria", ())
    hidden = isinstance(on.client, TraceClient) and on.client.hide_content
    for key, criterion in zip(criterion_keys([c["name"] for c in criteria], hidden=hidden), criteria, strict=True):
        send(key, criterion["score"], criterion["why"])


def _tell_of_run(step: RunTree, run: RunTree, state: Mapping[str, Any]) -> None:
    attempts: list[Attempt] = state.get("attempts", [])
    lessons = {
        name: [lesson["id"] for lesson in state.get(name, ())]
        for name in ("lessons_used", "lessons_withheld", "lessons_learned")
    }
    ended = {
        "stop_reason": state["stop_reason"],
        "score": state["score"],
        "passed": state["passed"],
        "attempts": len(attempts),
        **lessons,
    }
    add_metadata(run, ended)
    add_metadata(step, {"stop_reason": state["stop_reason"]})
    run.tags = [*(run.tags or []), f"stop:{state['stop_reason']}"]
    for attempt in attempts:
        # Judged before the run was broken off: nobody knows whether its scores were sent.
        if "score" in attempt and attempt["number"] not in run.metadata.get(_TOLD, ()):
            _tell_of_attempt(run, run, attempt, state["run_id"])
    if state["score"] is not None:
        _send(run, state["run_id"], "passed", float(state["passed"]), state["stop_detail"])
        _send(run, state["run_id"], "score", state["score"], None)


def _send(on: RunTree, about: str, key: str, score: float | None, comment: str | None, *, evaluator: str = "") -> None:
    """Send one score, if there is one."""
    client = on.client
    if score is None or client is None or client.tracing_mode == "otel":
        return
    need_no_project_id()
    send = partial(
        client.create_feedback,
        run_id=on.id,
        trace_id=on.trace_id,
        key=key,
        score=score,
        comment=comment or None,
        feedback_id=uuid.uuid5(_FEEDBACK_IDS, f"{about} {key}"),
        source_info={"evaluator": evaluator} if evaluator else None,
        stop_after_attempt=1,
    )
    if isinstance(client, TraceClient) and client.queues_feedback:
        send()
    else:
        asyncio.get_running_loop().run_in_executor(None, partial(_without_trouble, send))


def _without_trouble(send: Any) -> None:
    with suppress(Exception):  # LangSmith's client has logged it
        send()
