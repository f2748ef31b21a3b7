"""Does the judge agree with plain execution? HumanEval's solutions must pass, and each broken by one mistake must fail.

    uv run python benchmarks/judge_humaneval.py [--data PATH] [--limit N] [--mutants N] [--seed TEXT]

Mistakes that change nothing a test can see pass; those of `--mutants 1` are listed in `equivalent_mutants.txt`, each
with its reason. Every verdict is compared with plain execution of the same code and tests.
"""

import argparse
import asyncio
import gzip
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation import mutants
from plain_run import run_plainly

from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.evaluators.unit_tests import UnitTests
from reflexion.sandbox import Limits, available_layers

HERE = Path(__file__).parent
DATA = HERE.parent / "tests" / "data" / "HumanEval.jsonl.gz"


@dataclass(frozen=True)
class Outcome:
    task_id: str
    what: str
    evaluation: Evaluation
    trouble: str
    """What went wrong in plain execution of the same code and tests, empty for a pass."""

    @property
    def passed(self) -> bool:
        return self.evaluation.score == 1

    @property
    def agrees(self) -> bool:
        return self.passed == (not self.trouble)


def problems(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def equivalent_mutants() -> dict[str, str]:
    lines = (HERE / "equivalent_mutants.txt").read_text(encoding="utf-8").splitlines()
    listed = (line.split(" | ") for line in lines if line and not line.startswith("#"))
    return {f"{task_id} | {what}": reason for task_id, what, reason in listed}


async def outcome(problem: dict[str, Any], code: str, what: str, wall_s: float, at_once: asyncio.Semaphore) -> Outcome:
    evaluator = UnitTests(Limits(wall_s=wall_s, cpu_s=wall_s), entry=problem["entry_point"])
    task = Task(text=problem["prompt"], tests=problem["test"])
    attempt = Attempt(number=1, answer=f"```python\n{code}\n```", plan="", style="first")
    async with at_once:
        evaluation = await evaluator.evaluate(task, attempt)
        trouble = await asyncio.to_thread(run_plainly, code, problem["test"], problem["entry_point"], wall_s)
    return Outcome(problem["task_id"], what, evaluation, trouble)


async def measure(found: list[dict[str, Any]], broken: int, options: argparse.Namespace) -> list[Outcome]:
    """Judge the solutions, or so many broken versions of each."""
    at_once = asyncio.Semaphore(2)
    work = []
    for problem in found:
        solution, seed = problem["prompt"] + problem["canonical_solution"], f"{options.seed} {problem['task_id']}"
        codes = mutants(solution, problem["entry_point"], seed, broken) if broken else [("solution", solution)]
        work += [outcome(problem, code, what, options.seconds, at_once) for what, code in codes]
    return await asyncio.gather(*work)


def report(title: str, outcomes: list[Outcome], expected: Callable[[Outcome], bool] | None) -> int:
    """Print what came out, and give how many are wrong; `expected` says whether one should pass."""
    passed = [one for one in outcomes if one.passed]
    unscored = [one for one in outcomes if one.evaluation.score is None]
    disagreeing = [one for one in outcomes if not one.agrees]
    unexpected = [one for one in outcomes if expected is not None and one.passed != expected(one)]
    print(f"{title}: {len(passed)} of {len(outcomes)} pass, {len(outcomes) - len(passed)} do not,")
    print(f"  {len(unscored)} without a score, {len(outcomes) - len(disagreeing)} agree with plain execution", end="")
    print(f", {len(unexpected)} unexpected" if expected is not None else "")
    for label, listed in (("unexpected", unexpected), ("differs from plain execution", disagreeing)):
        for one in listed:
            print(f"  {label}: {one.task_id} | {one.what}: {one.evaluation.score} {one.evaluation.feedback[:300]!r}")
            print(f"    plain: {one.trouble or 'passes'}")
    return len(unexpected) + len(disagreeing) + len(unscored)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="HumanEval.jsonl.gz")
    parser.add_argument("--limit", type=int, default=None, help="only the first N tasks")
    parser.add_argument("--mutants", type=int, default=0, help="also break each solution in so many ways")
    parser.add_argument("--seed", default="1", help="chooses the mistakes")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for one judgement, and for plain execution")
    options = parser.parse_args()
    found = problems(options.data)[: options.limit]
    print("layers:", ", ".join(available_layers()))
    exempt = equivalent_mutants() if (options.mutants, options.seed) == (1, "1") else None
    parts: list[tuple[str, int, Callable[[Outcome], bool] | None]] = [("solutions", 0, lambda one: True)]
    if options.mutants:
        listed = None if exempt is None else lambda one: f"{one.task_id} | {one.what}" in exempt
        parts.append(("mutants", options.mutants, listed))
    wrong = 0
    for title, broken, expected in parts:
        began = time.monotonic()
        wrong += report(title, asyncio.run(measure(found, broken, options)), expected)
        print(f"  {time.monotonic() - began:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
