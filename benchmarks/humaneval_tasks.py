"""HumanEval as a file of tasks for `reflexion batch`: each with its tests, or with the examples of its docstring only.

uv run python benchmarks/humaneval_tasks.py tests/data/HumanEval.jsonl.gz tasks.jsonl --limit 20
uv run reflexion batch tasks.jsonl --out out.jsonl --concurrency 2 --max-attempts 3 --budget-tokens 12000
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from humaneval import visible_tests


def tasks(data: Path, *, examples: bool) -> Iterator[dict[str, Any]]:
    """The tasks; without those that have no examples, where examples are wanted."""
    with gzip.open(data, "rt", encoding="utf-8") as file:
        for problem in map(json.loads, file):
            tests = visible_tests(problem) if examples else f"{problem['test']}\ncheck({problem['entry_point']})\n"
            if tests:
                text = f"Complete this function:\n\n{problem['prompt']}"
                yield {"id": problem["task_id"], "task": text, "tests": tests}


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="HumanEval.jsonl.gz")
    parser.add_argument("out", type=Path, help="the file of tasks")
    parser.add_argument("--limit", type=int, help="how many tasks [all]")
    parser.add_argument("--examples", action="store_true", help="judge by the docstring's examples, not the tests")
    given = parser.parse_args()
    lines = [json.dumps(task) + "\n" for task in tasks(given.data, examples=given.examples)][: given.limit]
    given.out.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} tasks in {given.out}")


if __name__ == "__main__":
    main()
