"""Labelled examples for `reflexion calibrate`: HumanEval's solutions, and each broken by one mistake.

    uv run python benchmarks/labelled_humaneval.py --limit 24 > examples.jsonl           # for a critic
    uv run python benchmarks/labelled_humaneval.py --limit 24 --tests > examples.jsonl   # for the unit tests

Both answers are written by `ast.unparse`, so that the mistake is all that tells them apart. Mistakes that HumanEval's
own tests cannot see (`equivalent_mutants.txt`) are left out with their task.
"""

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from judge_humaneval import DATA, equivalent_mutants, problems
from mutation import mutate


def examples(path: Path, *, tests: bool, seed: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A right and a wrong answer for each task."""
    equivalent = equivalent_mutants()
    for problem in problems(path):
        code = problem["prompt"] + problem["canonical_solution"]
        what, broken = mutate(code, problem["entry_point"], f"{seed} {problem['task_id']}")
        if f"{problem['task_id']} | {what}" in equivalent:
            continue
        given = {"task": f"Complete this function:\n\n{problem['prompt']}"}
        if tests:
            given["tests"] = problem["test"]
        right = {"id": problem["task_id"], **given, "answer": _fenced(ast.unparse(ast.parse(code))), "truth": True}
        wrong = {"id": f"{problem['task_id']} {what}", **given, "answer": _fenced(broken), "truth": False}
        yield right, wrong


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def main() -> None:
    """Print one object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--limit", type=int, default=24, help="how many tasks, each with two answers [24]")
    parser.add_argument("--tests", action="store_true", help="give the tests, so that they judge and not a critic")
    parser.add_argument("--seed", default="1", help="chooses the mistakes")
    given = parser.parse_args()
    pairs = list(examples(given.data, tests=given.tests, seed=given.seed))[: given.limit]
    for pair in pairs:
        for example in pair:
            print(json.dumps(example))


if __name__ == "__main__":
    main()
