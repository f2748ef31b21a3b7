"""Does recall find the lesson of the same task in other words, and leave those of other tasks alone?

Every HumanEval task of the sample is asked for by the prose of its docstring alone, without its name, signature
and examples. The store holds the lessons of so many tasks, once with the task itself among them and once without.

    uv run python benchmarks/likeness.py [--sample 60] [--stored 100] [--seed 1]
"""

import argparse
import ast
import gzip
import json
import random
from pathlib import Path

from reflexion.memory.choice import LEAST_LIKENESS
from reflexion.memory.likeness import rank

DATA = Path(__file__).parent.parent / "tests" / "data" / "HumanEval.jsonl.gz"


def prose(prompt: str) -> str:
    """What a docstring says before its examples."""
    functions = [node for node in ast.parse(prompt + "    pass\n").body if isinstance(node, ast.FunctionDef)]
    text = ast.get_docstring(functions[-1]) or ""
    return text.split(">>>")[0].split("xample")[0].strip()


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, help="tasks asked for [60]")
    parser.add_argument("--stored", type=int, default=100, help="lessons in the store [100]")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    chance = random.Random(given.seed)
    missed = mistaken = wrong_first = 0
    sample = chance.sample([p for p in prompts if len(prose(p)) > 30], given.sample)
    for prompt in sample:
        others = chance.sample([other for other in prompts if other != prompt], given.stored - 1)
        likeness = rank(prose(prompt), [*others, prompt])
        missed += likeness[-1] < LEAST_LIKENESS
        wrong_first += likeness[-1] < max(likeness[:-1])
        mistaken += max(rank(prose(prompt), others)) >= LEAST_LIKENESS
    share = [f"{100 * count / len(sample):.0f} %" for count in (missed, wrong_first, mistaken)]
    print(
        f"{len(sample)} tasks asked for by their prose, {given.stored} lessons stored: {share[0]} not recalled, "
        f"{share[1]} after another task's lesson; without their own lesson {share[2]} recall another's"
    )


if __name__ == "__main__":
    main()
