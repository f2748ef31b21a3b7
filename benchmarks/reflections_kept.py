"""Recorded reflections, given to the memory one run after the other: how many are stored, merged, refused, and why.

DATA is a folder with the recorded runs of the Reflexion paper as JSON lines, each with `task_id` and `reflections`
(alfworld_reflexion.jsonl, humaneval_runs.jsonl). Nothing is known of their answers and verdicts. `--pairs` prints
pairs of reflections of one task around the likeness from which they count as the same, to be judged by eye;
`--sample` draws so many of all reflections and prints what became of each, for the same purpose. What came of judging
50 is in data/hand_check_50.jsonl, beside this file.

    uv run python benchmarks/reflections_kept.py DATA [--pairs 20 | --sample 50]
"""

import argparse
import asyncio
import itertools
import json
import random
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from langgraph.store.memory import InMemoryStore

from reflexion.memory import Episode, Evidence, Memory, concise, make_lesson, objection, task_key
from reflexion.memory.likeness import rank
from reflexion.memory.upkeep import SAME_RULE

FILES = {"AlfWorld": "alfworld_reflexion.jsonl", "HumanEval": "humaneval_runs.jsonl"}
ROWS = ("reflections", "stored", "merged: same words", "merged: same rule")
SHORTENED = "only their first sentences, of these"


def runs(file: Path) -> list[tuple[str, list[str]]]:
    """The task of each run, and its reflections."""
    with file.open(encoding="utf-8") as lines:
        return [(run["task_id"], run["reflections"]) for run in map(json.loads, lines) if run["reflections"]]


@dataclass(frozen=True)
class Kept:
    """What became of one reflection."""

    id: str
    text: str
    became: str
    lesson: str
    """What the memory now holds in its place; empty for nothing."""


async def kept(name: str, recorded: list[tuple[str, list[str]]]) -> list[Kept]:
    """What becomes of the reflections, each taken for a run of its own."""
    memory, found = Memory(InMemoryStore()), list[Kept]()
    for number, (task, text) in enumerate((task, text) for task, texts in recorded for text in texts):
        key, rule = f"{name} {number} {task}", concise(text)
        if why := objection(rule, ""):
            found.append(Kept(key, text, f"refused: {why}", ""))
            continue
        lesson = make_lesson(task, rule, number)
        known = {each.id for each in await memory.lessons()}
        evidence = Evidence(thread_id="", attempt=1, text=rule, evaluator="", verdict="", confirmed=False)
        (home,) = await memory.remember(episode(str(number), task), [(lesson, evidence)])
        same = "merged: same words" if home["id"] == lesson["id"] else "merged: same rule"
        found.append(Kept(key, text, same if home["id"] in known else "stored", home["text"]))
    return found


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
    parser.add_argument("--sample", type=int, default=0, help="show what became of so many instead")
    given = parser.parse_args()
    recorded = {name: runs(given.data / file) for name, file in FILES.items()}
    if given.pairs:
        for name in FILES:
            print(f"\n# {name}")
            show_pairs(recorded[name], given.pairs)
        return
    all_kept = [each for name in FILES for each in asyncio.run(kept(name, recorded[name]))]
    if given.sample:
        for each in random.Random(1).sample(all_kept, given.sample):
            print(json.dumps(asdict(each), ensure_ascii=False))
        return
    found = {name: Counter(each.became for each in all_kept if each.id.startswith(name)) for name in FILES}
    for name, counts in found.items():
        counts["reflections"] = counts.total()
        of_it = [each.text for each in all_kept if each.id.startswith(name)]
        counts[SHORTENED] = sum(concise(text) != text for text in of_it)
    reasons = sorted({key for counts in found.values() for key in counts if key.startswith("refused")})
    print(f"| what became of them | {' | '.join(FILES)} |\n|---|{'---:|' * len(FILES)}")
    for row in (*ROWS, *reasons, SHORTENED):
        print(f"| {row} | {' | '.join(str(found[name][row]) for name in FILES)} |")


if __name__ == "__main__":
    main()
