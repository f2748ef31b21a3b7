"""Does the judge agree with plain execution? HumanEval's solutions must pass, and each broken by one mistake must fail.

    uv run python benchmarks/judge_humaneval.py [--data PATH] [--limit N] [--mutants] [--seed TEXT]

Mistakes that change nothing a test can see are listed in `equivalent_mutants.txt`, each with its reason. Plain
execution runs HumanEval's own code in a process without protection; it is known data, not a model's answer.
"""

import argparse
import asyncio
import gzip
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation import mutate

from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.evaluators.unit_tests import UnitTests
from reflexion.sandbox import Limits, available_layers

HERE = Path(__file__).parent
DATA = HERE.parent / "tests" / "data" / "HumanEval.jsonl.gz"
PLAIN_WALL_S = 10.0


@dataclass(frozen=True)
class Outcome:
    task_id: str
    what: str
    evaluation: Evaluation
    plain: bool
    """Whether plain execution of the same code and tests passes."""


def problems(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def equivalent_mutants() -> dict[str, str]:
    lines = (HERE / "equivalent_mutants.txt").read_text(encoding="utf-8").splitlines()
    listed = (line.split(" | ") for line in lines if line and not line.startswith("#"))
    return {f"{task_id} | {what}": reason for task_id, what, reason in listed}


def passes_plainly(code: str, problem: dict[str, Any]) -> bool:
    program = f"{code}\n{problem['test']}\ncheck({problem['entry_point']})\n"
    command = [sys.executable, "-I", "-"]
    try:
        ended = subprocess.run(command, input=program.encode(), capture_output=True, timeout=PLAIN_WALL_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


async def outcome(problem: dict[str, Any], code: str, what: str, plain_runs: asyncio.Semaphore) -> Outcome:
    evaluator = UnitTests(Limits(), entry=problem["entry_point"])
    task = Task(text=problem["prompt"], tests=problem["test"])
    attempt = Attempt(number=1, answer=f"```python\n{code}\n```", plan="", style="first")
    evaluation = await evaluator.evaluate(task, attempt)
    async with plain_runs:
        plain = await asyncio.to_thread(passes_plainly, code, problem)
    return Outcome(problem["task_id"], what, evaluation, plain)


async def measure(found: list[dict[str, Any]], seed: str | None) -> list[Outcome]:
    plain_runs = asyncio.Semaphore(2)
    work = []
    for problem in found:
        code, what = problem["prompt"] + problem["canonical_solution"], "solution"
        if seed is not None:
            what, code = mutate(code, problem["entry_point"], f"{seed} {problem['task_id']}")
        work.append(outcome(problem, code, what, plain_runs))
    return await asyncio.gather(*work)


def report(title: str, outcomes: list[Outcome], *, should_pass: bool, exempt: dict[str, str]) -> int:
    """Print what came out, and give how many are wrong."""
    passed = [one for one in outcomes if one.evaluation.score == 1]
    unscored = [one for one in outcomes if one.evaluation.score is None]
    disagreeing = [one for one in outcomes if (one.evaluation.score == 1) != one.plain]
    unexpected = [
        one
        for one in outcomes
        if (one.evaluation.score == 1) != (should_pass or f"{one.task_id} | {one.what}" in exempt)
    ]
    print(f"{title}: {len(passed)} of {len(outcomes)} pass, {len(unscored)} without a score,")
    print(f"  {len(outcomes) - len(disagreeing)} agree with plain execution, {len(unexpected)} unexpected")
    for label, listed in (("unexpected", unexpected), ("differs from plain execution", disagreeing)):
        for one in listed:
            print(f"  {label}: {one.task_id} | {one.what}: {one.evaluation.score} {one.evaluation.feedback[:300]!r}")
    return len(unexpected) + len(disagreeing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="HumanEval.jsonl.gz")
    parser.add_argument("--limit", type=int, default=None, help="only the first N tasks")
    parser.add_argument("--mutants", action="store_true", help="also break each solution by one mistake")
    parser.add_argument("--seed", default="1", help="chooses the mistakes")
    options = parser.parse_args()
    found = problems(options.data)[: options.limit]
    print("layers:", ", ".join(available_layers()))
    wrong = 0
    for title, seed in (("solutions", None), ("mutants", options.seed))[: 1 + options.mutants]:
        began = time.monotonic()
        outcomes = asyncio.run(measure(found, seed))
        exempt = equivalent_mutants() if seed is not None else {}
        wrong += report(title, outcomes, should_pass=seed is None, exempt=exempt)
        print(f"  {time.monotonic() - began:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
