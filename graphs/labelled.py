"""Reads labelled examples: answers of which it is known whether they are right."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reflexion.evaluators import Task
from reflexion.nodes import ConfigurationError
from reflexion.nodes.plain import plain
from reflexion.nodes.recall import read_task

FIELDS = frozenset({"task", "answer", "truth", "id", "tests", "expect", "criteria"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An answer to a task, and whether it is right."""

    id: str
    """Names it in reports; in a file its own, else the number of its line."""
    task: Task
    answer: str
    truth: bool

    @property
    def key(self) -> str:
        """The same for what an evaluator would judge alike: all but `id` and `truth`."""
        judged = [self.task.text, self.task.tests, self.task.expect, list(self.task.criteria), self.answer]
        return hashlib.sha256(json.dumps(judged, sort_keys=True).encode()).hexdigest()[:16]


def read_examples(path: Path | str, limit: int | None = None) -> list[Example]:
    """The examples of a JSONL file, checked as a whole.

    Args:
        path: one object a line: `task`, `answer`, `truth` (true or false), and perhaps `id`, `tests`, `expect`,
            `criteria`.
        limit: how many of the first ones are wanted; None for all. The others are checked as well.

    Raises:
        ConfigurationError: the file, or lines of it, cannot be used; says which, and what to do.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    examples, problems = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            examples.append(_example(line, str(number)))
        except ConfigurationError as error:
            problems.append(f"line {number}: {error}")
    problems = problems or _repeated(examples)
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise ConfigurationError(f"{path}: {'; '.join(problems[:3])}{more}")
    if not examples:
        raise ConfigurationError(f"{path}: holds no examples: {_FORM}")
    return examples[:limit]


_FORM = 'one JSON object a line is needed, such as {"task": "2 + 2?", "answer": "4", "truth": true}'


def _example(line: str, number: str) -> Example:
    try:
        data = plain(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"is not JSON ({error}): {_FORM}") from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"is no object: {_FORM}")
    if missing := [name for name in ("task", "answer", "truth") if name not in data]:
        raise ConfigurationError(f"{', '.join(missing)} missing: {_FORM}")
    if unknown := sorted(data.keys() - FIELDS):
        raise ConfigurationError(f"{unknown[0]!r} is not known: take it out; there are {', '.join(sorted(FIELDS))}")
    given: dict[str, Any] = {"id": number} | data
    return make_example(**given)


def make_example(
    task: str,
    answer: str,
    truth: bool,
    *,
    id: str | int = "",  # noqa: A002 - the field's name in the file
    tests: str = "",
    expect: Any = None,
    criteria: Sequence[str] = (),
) -> Example:
    """One example, checked.

    Args:
        task: what was asked for.
        answer: what was answered.
        truth: whether that is right.
        id: a name for reports.
        tests: as a run takes them, like the others below.
        expect: the expected answer.
        criteria: what a critic is to look at.

    Raises:
        ConfigurationError: it cannot be used.
    """
    if not isinstance(truth, bool):
        raise ConfigurationError(f"truth: {truth!r} is neither true nor false: say whether the answer is right")
    if not isinstance(answer, str) or not answer.strip():
        raise ConfigurationError(
            f"answer: {answer!r} is no text; a run fails an empty reply without an evaluator, so leave it out"
        )
    if not isinstance(task, str) or not task.strip():
        raise ConfigurationError(f"task: {task!r} is no text: give what was asked for")
    if not isinstance(id, str | int) or isinstance(id, bool):
        raise ConfigurationError(f"id: {id!r} is neither text nor number")
    spec = read_task({"task": task, "tests": tests, "expect": expect, "criteria": criteria})  # type: ignore[typeddict-item]
    wanted = Task(text=spec["text"], tests=spec["tests"], expect=spec["expect"], criteria=spec["criteria"])
    return Example(id=str(id), task=wanted, answer=answer, truth=truth)


def _repeated(examples: Sequence[Example]) -> list[str]:
    counts = Counter(example.id for example in examples)
    return [f"the id {name!r} is given twice: each needs its own, or none" for name, n in counts.items() if n > 1]
