"""Runs `reflexion run` on HumanEval tasks, and the hidden tests once, at the end.

The agent sees the task and the examples in its docstring, turned into tests; it never sees the hidden
tests. They then judge the first attempt and the returned answer, so that what reflecting has brought shows.

    uv run python benchmarks/humaneval.py --limit 20 --out humaneval.jsonl
"""

import argparse
import ast
import asyncio
import gzip
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from reflexion.evaluators import check_tests, examples_of
from reflexion.evaluators.code import extract_code
from reflexion.sandbox import Limits, judge

DATA = Path(__file__).parent.parent / "tests" / "data" / "HumanEval.jsonl.gz"


def visible_tests(task: dict[str, Any]) -> str:
    """The examples of the docstring as tests; empty for none."""
    functions = [node for node in ast.parse(task["prompt"] + "    pass\n").body if isinstance(node, ast.FunctionDef)]
    docstrings = [ast.get_docstring(node) or "" for node in functions if node.name == task["entry_point"]]
    return examples_of(docstrings[0]) if docstrings else ""


def run(task: dict[str, Any], folder: Path, options: list[str]) -> dict[str, Any]:
    """One task through the command line; what it prints as JSON."""
    tests = folder / "tests.py"
    tests.write_text(visible_tests(task) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "reflexion.cli", "run", "Complete this function:\n\n" + task["prompt"]]
    command += ["--tests", str(tests), "--json", "--threshold", "1", "--no-memory", "--database", "memory://", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{task['task_id']}: reflexion ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


async def hidden(task: dict[str, Any], answer: str) -> bool:
    """Whether an answer passes the hidden tests."""
    code = extract_code(answer)
    if f"def {task['entry_point']}(" not in code:
        code = task["prompt"] + code
    preamble = task["prompt"][: task["prompt"].index("def ")]
    verdict = await judge(preamble + code, task["test"], entry=task["entry_point"], limits=Limits(wall_s=20, cpu_s=20))
    return verdict.passed


def main() -> None:
    """Run, print a row a task, and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--limit", type=int, default=20, help="how many tasks [20]")
    parser.add_argument("--skip", type=int, default=0, help="how many tasks to pass over first [0]")
    parser.add_argument("--out", type=Path, help="write one JSON object a task to this file")
    parser.add_argument("options", nargs="*", help="further options of `reflexion run`, after --")
    given = parser.parse_args()
    with gzip.open(given.data, "rt", encoding="utf-8") as file:
        tasks = [task for task in map(json.loads, file) if visible_tests(task)]
    tasks = tasks[given.skip : given.skip + given.limit]
    print(f"{'task':<14} {'examples':>8} {'scores':<20} {'stopped':<14} {'tokens':>7}  hidden: first, returned")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for task in tasks:
            result = run(task, Path(folder), given.options)
            answers = [attempt["answer"] for attempt in result["attempts"]]
            row = {
                "task_id": task["task_id"],
                "examples": check_tests(visible_tests(task)),
                "scores": [attempt["score"] for attempt in result["attempts"]],
                "stop_reason": result["stop_reason"],
                "tokens": result["usage"]["prompt_tokens"] + result["usage"]["completion_tokens"],
                "hidden_first": asyncio.run(hidden(task, answers[0])) if answers else False,
                "hidden_returned": asyncio.run(hidden(task, result["answer"])),
                "duration_s": result["duration_s"],
                "attempts": result["attempts"],
            }
            rows.append(row)
            scores = " ".join("–" if score is None else f"{score:.2f}" for score in row["scores"])
            print(
                f"{row['task_id']:<14} {row['examples']:>8} {scores:<20} {row['stop_reason']:<14} {row['tokens']:>7}  "
                f"{'pass' if row['hidden_first'] else 'fail'}, {'pass' if row['hidden_returned'] else 'fail'}",
                flush=True,
            )
            if given.out:
                with given.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
    print(summary(rows))


def summary(rows: list[dict[str, Any]]) -> str:
    """What the rows come to."""
    passed_at = Counter(len(row["scores"]) for row in rows if row["stop_reason"] == "passed")
    by_attempt = ", ".join(f"{count} at attempt {number}" for number, count in sorted(passed_at.items()))
    first = sum(row["hidden_first"] for row in rows)
    returned = sum(row["hidden_returned"] for row in rows)
    better = sum(row["hidden_returned"] and not row["hidden_first"] for row in rows)
    worse = sum(row["hidden_first"] and not row["hidden_returned"] for row in rows)
    return (
        f"{len(rows)} tasks; examples passed: {sum(passed_at.values())} ({by_attempt}); "
        f"stopped: {dict(Counter(row['stop_reason'] for row in rows))}\n"
        f"hidden tests: {first} at the first attempt, {returned} as returned "
        f"({better} gained, {worse} lost by going on); {sum(row['tokens'] for row in rows):,} tokens"
    )


if __name__ == "__main__":
    main()
