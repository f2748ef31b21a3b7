"""Recorded reflections, given to the memory one run after the other: how many are stored, merged, refused, and why.

DATA is a folder with the recorded runs of the Reflexion paper as JSON lines, each with `task_id` and `reflections`
(alfworld_reflexion.jsonl, humaneval_runs.jsonl). Nothing is known of their answers and verdicts. `--pairs` prints
pairs of reflections of one task around the likeness from which they count as the same, to be judged by eye.

    uv run python benchmarks/reflections_kept.py DATA [--pairs 20]
"""

import argparse
import asyncio
import itertools
import json
import random
from collections import Counter
from pathlib import Path

from langgraph.store.memory import InMemoryStore

from reflexion.memory import Episode, Evidence, Memory, make_lesson, objection, task_key
from reflexion.memory.likeness import rank
from reflexion.memory.upkeep import SAME_RULE

FILES = {"AlfWorld": "alfworld_reflexion.jsonl", "HumanEval": "humaneval_runs.jsonl"}
COLUMNS = ("reflections", "stored", "merged: same words", "merged: same rule")


def runs(file: Path) -> list[tuple[str, list[str]]]:
    """The task of each run, and its reflections."""
    with file.open(encoding="utf-8") as lines:
        return [(run["task_id"], run["reflections"]) for run in map(json.loads, lines) if run["reflections"]]


async def kept(recorded: list[tuple[str, list[str]]]) -> Counter[str]:
    """What becomes of the reflections, each taken for a run of its own."""
    memory, counts = Memory(InMemoryStore()), Counter[str]()
    for number, (task, text) in enumerate((task, text) for task, texts in recorded for text in texts):
        counts["reflections"] += 1
        if why := objection(text, ""):
            counts[f"refused: {why}"] += 1
            continue
        lesson = make_lesson(task, text, number)
        known = {each.id for each in await memory.lessons()}
        evidence = Evidence(thread_id="", attempt=1, text=text, evaluator="", verdict="", confirmed=False)
        (home,) = await memory.remember(episode(str(number), task), [(lesson, evidence)])
        same = "merged: same words" if home["id"] == lesson["id"] else "merged: same rule"
        counts[same if home["id"] in known else "stored"] += 1
    return counts


def episode(run_id: str, task: str) -> Episode:
    """Of a run of which nothing is known."""
    return Episode(
        run_id=run_id,
        thread_id="",
        task=task,
        task_key=task_key(task),
        scores=[],
        first_passed=None,
        passed=False,
        stop_reason="max_attempts",
        cost_usd=None,
        lessons_used=[],
        lessons_withheld=[],
        lessons_learned=[],
        at=0.0,
    )


def show_pairs(recorded: list[tuple[str, list[str]]], count: int) -> None:
    """Print so many pairs of one task, half of them just below and half just above the likeness of the same rule."""
    of_task: dict[str, list[str]] = {}
    for task, texts in recorded:
        of_task.setdefault(task, []).extend(texts)
    pairs = [
        (rank(one, [other])[0], one, other)
        for texts in of_task.values()
        for one, other in itertools.combinations(dict.fromkeys(texts), 2)
    ]
    chance = random.Random(1)
    for low, high in ((SAME_RULE - 0.05, SAME_RULE), (SAME_RULE, SAME_RULE + 0.05)):
        near = [pair for pair in pairs if low <= pair[0] < high]
        for likeness, one, other in chance.sample(near, min(count // 2, len(near))):
            print(f"\n{likeness:.3f}\n  {one.strip()}\n  {other.strip()}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with the recorded runs")
    parser.add_argument("--pairs", type=int, default=0, help="show so many pairs instead")
    given = parser.parse_args()
    recorded = {name: runs(given.data / file) for name, file in FILES.items()}
    if given.pairs:
        for name in FILES:
            print(f"\n# {name}")
            show_pairs(recorded[name], given.pairs)
        return
    found = {name: asyncio.run(kept(recorded[name])) for name in FILES}
    reasons = sorted({key for counts in found.values() for key in counts if key.startswith("refused")})
    print(f"| what became of them | {' | '.join(FILES)} |\n|---|{'---:|' * len(FILES)}")
    for row in (*COLUMNS, *reasons):
        print(f"| {row} | {' | '.join(str(found[name][row]) for name in FILES)} |")


if __name__ == "__main__":
    main()
