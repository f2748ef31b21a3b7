"""Does the judge agree with what was recorded of real models' code? Runs the recorded solutions again.

    uv run python benchmarks/judge_recorded.py DATA_FOLDER [--limit N]

DATA_FOLDER holds `recorded/humaneval_runs.jsonl`, `recorded/mbpp_reflexion_gpt4_run1.jsonl` and `…_run2.jsonl`: final
solutions of gpt-4, gpt-3.5-turbo and text-davinci-003 from the runs that https://github.com/noahshinn/reflexion
published, each with its task and whether it was solved, and `tasks/HumanEval.jsonl.gz` with the tests.

Where plain execution, alone and now, agrees with the record, the judge has to agree too. Where it does not, the record
itself cannot be had again: those are listed with what plain execution says. The harness of the time ran all tasks in
one namespace, so some code passed on names that an earlier task had left behind, and some failed on a builtin
that one had replaced.
"""

import argparse
import ast
import asyncio
import builtins
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plain_run import run_plainly

from reflexion.sandbox import Limits, Verdict, judge

TYPING = "from typing import *\n"
"""The harness of the time ran this before each solution."""


@dataclass(frozen=True)
class Recorded:
    name: str
    code: str
    tests: str
    entry: str
    solved: bool


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def recorded(folder: Path) -> Iterator[Recorded]:
    problems = {problem["task_id"]: problem for problem in lines(folder / "tasks" / "HumanEval.jsonl.gz")}
    for run in lines(folder / "recorded" / "humaneval_runs.jsonl"):
        problem, solution = problems[run["task_id"]], run["solution"]
        whole = solution if f"def {run['entry_point']}(" in solution else problem["prompt"] + solution
        name = f"{run['source']} {run['task_id']}"
        yield Recorded(name, TYPING + whole, problem["test"], run["entry_point"], run["recorded_is_solved"])
    for number in (1, 2):
        for run in lines(folder / "recorded" / f"mbpp_reflexion_gpt4_run{number}.jsonl"):
            name, code = f"{run['source']} {run['task_id']}", TYPING + run["attempts"][-1]["code"]
            # The last lines of the tests call `check` themselves, which plain execution does too.
            yield Recorded(name, code, run["hidden_test"], run["entry_point"], run["recorded_is_solved"])


def told(verdict: Verdict) -> str:
    failed = next((result for result in verdict.results if not result.passed), None)
    return verdict.message or (f"{failed.name}: got {failed.got} {failed.message}" if failed else "passes")


def why_unlike_record(one: Recorded, trouble: str, replaced: set[str]) -> str:
    """Explain why plain execution says something else than the record; `replaced` are builtins that tasks define."""
    if one.solved and trouble.startswith("NameError"):
        return "passed on a name left behind by another task in the shared namespace"
    if one.solved and trouble.startswith("no end"):
        return "takes longer than the limit here"
    used = {node.id for node in ast.walk(ast.parse(one.code)) if isinstance(node, ast.Name)}
    if not one.solved and used & replaced:
        return f"failed on a builtin that another task had replaced there: {', '.join(used & replaced)}"
    return "unexplained"


async def measure(found: list[Recorded], wall_s: float) -> list[tuple[Recorded, Verdict, str]]:
    at_once = asyncio.Semaphore(2)

    async def one(each: Recorded) -> tuple[Recorded, Verdict, str]:
        async with at_once:
            limits = Limits(wall_s=wall_s, cpu_s=wall_s)
            verdict = await judge(each.code, each.tests, entry=each.entry, limits=limits)
            return each, verdict, await asyncio.to_thread(run_plainly, each.code, each.tests, each.entry, wall_s)

    return await asyncio.gather(*map(one, found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=None, help="only the first N")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for one judgement, and for plain execution")
    options = parser.parse_args()
    outcomes = asyncio.run(measure(list(recorded(options.folder))[: options.limit], options.seconds))
    like = [outcome for outcome in outcomes if outcome[0].solved == (not outcome[2])]
    wrong = [outcome for outcome in outcomes if outcome[1].passed == bool(outcome[2])]
    agreeing = sum(verdict.passed == one.solved for one, verdict, _ in like)
    print(f"{len(outcomes)} recorded solutions, {sum(one.solved for one, _, _ in outcomes)} recorded as solved")
    print(f"plain execution agrees with the record on {len(like)}; of these the judge agrees on {agreeing}")
    print(f"the judge agrees with plain execution on {len(outcomes) - len(wrong)} of {len(outcomes)}")
    for one, verdict, trouble in wrong:
        print(f"  {one.name}: plain {trouble or 'passes'!r}, the judge {told(verdict)!r}")
    unlike = [outcome for outcome in outcomes if outcome not in like]
    print(f"plain execution differs from the record on {len(unlike)}:")
    replaced = {one.entry for one, _, _ in outcomes if hasattr(builtins, one.entry)}
    reasons = Counter(why_unlike_record(one, trouble, replaced) for one, _, trouble in unlike)
    for reason, count in reasons.most_common():
        print(f"  {count} {reason}")
    for one, verdict, trouble in unlike:
        print(f"    {one.name}: plain {trouble or 'passes'!r}, the judge {told(verdict)[:150]!r}")
    return 1 if agreeing < len(like) or "unexplained" in reasons else 0


if __name__ == "__main__":
    sys.exit(main())
