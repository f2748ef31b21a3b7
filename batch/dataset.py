"""A LangSmith dataset as the tasks of a batch, and an experiment as what came of it."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

from reflexion.batch.errors import BatchError
from reflexion.evaluators.langsmith import read_example
from reflexion.models import scrub

if TYPE_CHECKING:
    from langsmith import Client
    from langsmith.schemas import TracerSession

_LONGEST = 300
"""Characters of an error that a message shows."""


def dataset_tasks(client: "Client", name: str) -> BinaryIO:
    """The examples of a dataset as a file of tasks, which is deleted when it is closed.

    Only the inputs are read, as `task`, `tests`, `expect` and `criteria`, and as `context` and `priority` where they
    have these; the id is the example's. An example that is no task becomes a bad line.

    Args:
        client: of LangSmith.
        name: the dataset's.

    Raises:
        BatchError: it cannot be read, or is empty.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        for example in client.list_examples(dataset_name=name):
            file.write(json.dumps(_line(str(example.id), example.inputs or {}), ensure_ascii=False).encode() + b"\n")
    except Exception as error:
        file.close()
        raise BatchError(f"dataset {name!r}: cannot be read from LangSmith: {_said(error)}") from error
    if not file.tell():
        file.close()
        raise BatchError(f"dataset {name!r}: holds no examples")
    file.seek(0)
    return file


def _line(name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        task = read_example(inputs)
    except ValueError:
        return {"id": name, **inputs}  # reading it says what is wrong
    given = {"task": task.text, "tests": task.tests, "expect": task.expect, "criteria": list(task.criteria)}
    return {"id": name, **given, **{field: inputs[field] for field in ("context", "priority") if field in inputs}}


def upload_experiment(
    client: "Client", dataset: str, name: str, batch_id: str, records: Iterable[Mapping[str, Any]]
) -> tuple[str, int]:
    """Send records to LangSmith as an experiment on a dataset: a run each, with feedback.

    The experiment is named after `name` and the batch, each run after its result: done again, it adds what is new.

    Args:
        client: of LangSmith.
        dataset: the name of the dataset whose examples the records' ids are.
        name: of the experiment.
        batch_id: of the batch.
        records: `Record.as_json()` of each; those that were not run are left out.

    Returns:
        The experiment's full name, and how many runs it was sent.

    Raises:
        BatchError: LangSmith does not take them.
    """
    full, sent = f"{name}-{batch_id[:8]}", 0
    try:
        project = client.create_project(
            full, reference_dataset_id=client.read_dataset(dataset_name=dataset).id, upsert=True
        )
        for record in records:
            if record["status"] != "not_run":
                _send(client, project, record)
                sent += 1
        client.flush()
    except Exception as error:
        raise BatchError(f"experiment {full!r}: cannot be sent to LangSmith: {_said(error)}") from error
    return full, sent


def _send(client: "Client", experiment: "TracerSession", record: Mapping[str, Any]) -> None:
    from langsmith import RunTree  # noqa: PLC0415 - slow to import

    started = experiment.start_time.replace(tzinfo=UTC)
    run_id = _uuid7(started, f"{experiment.id}/{record['id']}/{record['run_id']}")
    RunTree(
        id=run_id,
        trace_id=run_id,
        name="reflexion",
        run_type="chain",
        project_name=experiment.name,
        reference_example_id=record["id"],
        inputs={"example": record["id"]},
        outputs=dict(record),
        error=record["error"] or None,
        start_time=started,  # the records do not know theirs; what counts here is how long it took
        end_time=started + timedelta(seconds=record["duration_s"]),
        ls_client=client,
    ).post()
    judged = record["status"] in {"passed", "failed"}
    scores = {
        "passed": float(record["passed"]) if judged else None,
        "score": record["score"],
        "attempts": record["attempts_made"],
        "tokens": record["tokens"],
    }
    for key, score in scores.items():
        client.create_feedback(
            run_id,
            key,
            score=score,
            comment=record["error"] or None,
            trace_id=run_id,
            session_id=experiment.id,
            start_time=started,
            feedback_id=_uuid7(started, f"{run_id}/{key}"),
        )


def _uuid7(at: datetime, name: str) -> UUID:
    """The same for the same name; LangSmith wants ids that begin with a time."""
    data = bytearray(int(at.timestamp() * 1000).to_bytes(6, "big") + hashlib.sha256(name.encode()).digest()[:10])
    data[6], data[8] = 0x70 | data[6] & 0x0F, 0x80 | data[8] & 0x3F
    return UUID(bytes=bytes(data))


def _said(error: Exception) -> str:
    return scrub(" ".join(f"{type(error).__name__}: {error}".split()))[:_LONGEST]
