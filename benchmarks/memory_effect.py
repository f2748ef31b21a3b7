"""Does memory raise the pass rate of the first attempt? The embedded model, with and without it, on two families.

The design was fixed before the first run, and the script was run once. Both families are short texts that a function
judges, so that the verdict is grounded and a run takes seconds:

- `stated`: a sentence on a topic under two conditions that the task states (its length, its last word, ...). A model
  of 0.5 billion parameters breaks them often, and a rule in its prompt is known to help such a model. The lesson can
  add nothing but emphasis here; one of another task may even name another word.
- `unstated`: short texts of three kinds with a house rule that the task does not state (status lines begin with
  "[OPS]"). Only the verdict of a failed run tells it. This is what a memory across runs is for. Without it nearly
  every first attempt has to fail; the question is how much of the rest the whole chain achieves: reflection,
  what is stored, recall, and a model that has to obey.

Per seed and family: six tasks are learned from, by whole runs with the settings as they come (three attempts, lesson
stored or not as it comes). Then runs of one attempt, with memory and without: on the same tasks again, and on new tasks
of the family. Seeds draw the tasks. Each seed and family has a database of its own. `memory_control` is 0, as the runs
without memory are the comparison; they leave nothing behind. The order of the test runs is shuffled.

A third arm was added after the result of these, to see where in the chain the effect is lost:

- `told`: the tasks of `unstated`, but nothing is learned: one rule for each kind, written by a person, is imported
  (`reflexion memory import`), for the first task of its kind. So recall and the model's obedience are left alone.

The settings are the product's (the embedded model's first attempt has temperature 0), but for replies of at most 60
tokens. Finished runs are appended to OUT as JSON lines; started again, it goes on with those that are missing.

    uv run python benchmarks/memory_effect.py OUT.jsonl [--seeds 1 2 3]      # run what is missing, and print the table
    uv run python benchmarks/memory_effect.py OUT.jsonl --seeds              # print the table alone
"""

import argparse
import asyncio
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reflexion.evaluators import Attempt, Evaluation, Task
from reflexion.graphs import Reflexion, Result, Settings, open_reflexion
from reflexion.memory import Memory
from reflexion.models.intervals import Rate, difference

LEARNED = {"stated": 6, "unstated": 6, "told": 3}
NEW = {"stated": 12, "unstated": 6, "told": 9}
"""Tasks of each family and seed that are learned from, and that are new."""

Check = Callable[[str], str]
"""What is wrong with an answer; empty where it holds."""


@dataclass(frozen=True)
class Item:
    text: str
    checks: tuple[Check, ...]


# The family `stated`.

TOPICS = """a lighthouse; an old bicycle; the first snow; a busy market; a lost key; a night train; a small bakery; the
    desert; a broken clock; a school choir; an empty theatre; a fishing boat; a garden in spring; a mountain road; a
    library; a thunderstorm; a street musician; a puppy; a full moon; a chess game; a harbour; a vineyard; a windmill; a
    frozen lake; a birthday cake; a traffic jam; a telescope; a beehive; a wedding; a football match; a museum; a ferry;
    a campfire; an orchard; a radio station; a waterfall; a tailor; a greenhouse; a bridge; a carnival; a glacier; a
    pharmacy; a kite; a volcano; a sailor; a bus stop; a diary; a piano lesson; a river delta; a hotel lobby; a stadium;
    a quarry; a farmhouse; a comet"""
WORDS = ["again", "water", "morning", "alone", "tomorrow", "light", "together", "home", "slowly", "forever", "silence"]


def words(answer: str) -> list[str]:
    return re.findall(r"[\w'’-]+", answer)


def length(chance: random.Random) -> tuple[str, Check]:
    wanted = chance.randint(6, 10)
    return (
        f"has exactly {wanted} words",
        lambda answer: "" if len(words(answer)) == wanted else f"It has {len(words(answer))} words, not {wanted}.",
    )


def last_word(chance: random.Random) -> tuple[str, Check]:
    wanted = chance.choice(WORDS)
    return (
        f'ends with the word "{wanted}"',
        lambda answer: (
            ""
            if (words(answer) or [""])[-1].casefold() == wanted
            else f'Its last word is "{(words(answer) or [""])[-1]}", not "{wanted}".'
        ),
    )


def first_word(chance: random.Random) -> tuple[str, Check]:
    wanted = chance.choice(["Yesterday", "Nobody", "Sometimes", "Behind", "Although", "Every"])
    return (
        f'begins with the word "{wanted}"',
        lambda answer: (
            ""
            if (words(answer) or [""])[0] == wanted
            else f'Its first word is "{(words(answer) or [""])[0]}", not "{wanted}".'
        ),
    )


def lower_case(_: random.Random) -> tuple[str, Check]:
    return (
        "is written in lower case only",
        lambda answer: (
            "" if answer == answer.lower() else f'It has capital letters: "{"".join(filter(str.isupper, answer))}".'
        ),
    )


def no_comma(_: random.Random) -> tuple[str, Check]:
    return (
        "is a question without any comma",
        lambda answer: "" if answer.endswith("?") and "," not in answer else "It is no question, or has a comma.",
    )


CONDITIONS = [length, last_word, first_word, lower_case, no_comma]
CLASH = {frozenset({first_word, lower_case})}


def stated(chance: random.Random, count: int) -> list[Item]:
    pairs = [(a, b) for a in CONDITIONS for b in CONDITIONS if a.__name__ < b.__name__ and {a, b} not in CLASH]
    items = []
    for topic in chance.sample([" ".join(topic.split()) for topic in TOPICS.split(";")], count):
        (one, first), (two, second) = (make(chance) for make in chance.choice(pairs))
        items.append(Item(f"Write one sentence about {topic} that {one} and {two}.", (first, second)))
    return items


# The family `unstated`.


@dataclass(frozen=True)
class Kind:
    text: str
    subjects: str
    rule: str
    """As a person would put it; imported by the arm `told`, and unknown to the others."""
    check: Check


KINDS = [
    Kind(
        "Write a one-line status message about this incident: {}.",
        "the login page is slow; the mail server is down; the nightly backup failed; a disk is nearly full; "
        "payments are delayed; the search gives no results; a certificate has expired; the queue is growing",
        'Begin the status message with the tag "[OPS]".',
        lambda answer: "" if answer.startswith("[OPS]") else 'Status messages here carry the tag "[OPS]" in front.',
    ),
    Kind(
        "Write a one-line commit message for this change: {}.",
        "rename the class User to Account; fix a crash on empty input; remove the old parser; add a dark mode; "
        "speed up the start; update the licence text; sort the imports; log failed logins",
        "Write the commit message in lower case only.",
        lambda answer: "" if answer == answer.lower() else "Commit messages here have no capital letters.",
    ),
    Kind(
        "Write a one-sentence greeting to a customer for this occasion: {}.",
        "a new year; a first order; a birthday; a long silence; a moved office; a late delivery; a good review; "
        "a summer sale",
        'Sign the greeting with "Your Team" at its end.',
        lambda answer: (
            "" if answer.rstrip(".!").endswith("Your Team") else 'Greetings here are signed "Your Team" at their end.'
        ),
    ),
]


def unstated(chance: random.Random, count: int) -> list[Item]:
    of_kind = [
        [Item(kind.text.format(subject), (kind.check,)) for subject in chance.sample(kind.subjects.split("; "), 8)]
        for kind in KINDS
    ]
    return [items[n] for n in range(8) for items in of_kind][:count]


FAMILIES = {"stated": stated, "unstated": unstated, "told": unstated}


def judge_of(items: Sequence[Item]) -> Callable[[Task, Attempt], Evaluation]:
    checks = {item.text: item.checks for item in items}

    def judge(task: Task, attempt: Attempt) -> Evaluation:
        answer = attempt["answer"].strip()
        if len(answer) > 1 and answer[0] == answer[-1] and answer[0] in "\"'`":
            answer = answer[1:-1].strip()
        found = [check(answer) for check in checks[task.text]]
        wrong = [problem for problem in found if problem]
        return Evaluation(score=1 - len(wrong) / len(found), feedback="\n".join(wrong))

    return judge


# The runs.


def planned(family: str, seed: int) -> tuple[list[Item], list[tuple[str, str, Item, bool]]]:
    """The tasks, those that are learned from first, and the test runs in their order: key, set, task, with memory."""
    chance = random.Random(f"{FAMILIES[family].__name__} {seed}")
    items = FAMILIES[family](chance, LEARNED[family] + NEW[family])
    tests = [
        (
            f"{family}/{seed}/{'with' if memory else 'without'}/{n}",
            "same" if n < LEARNED[family] else "new",
            item,
            memory,
        )
        for n, item in enumerate(items)
        for memory in (True, False)
    ]
    chance.shuffle(tests)
    return items, tests


def line(key: str, what: str, result: Result) -> dict[str, Any]:
    return {
        "key": key,
        "set": what,
        "scores": [attempt.score for attempt in result.attempts],
        "stop_reason": result.stop_reason,
        "answers": [attempt.answer for attempt in result.attempts],
        "reflections": [attempt.reflection for attempt in result.attempts if attempt.reflection],
        "used": [[lesson["text"], lesson["similarity"]] for lesson in result.lessons_used],
        "learned": [lesson["text"] for lesson in result.lessons_learned],
        "model": next(iter(result.usage.by_model), ""),
        "tokens": result.usage.tokens,
        "duration_s": round(result.duration_s, 1),
    }


async def run_all(out: Path, family: str, seed: int) -> None:
    """Make the runs of a family and seed that are missing."""
    items, tests = planned(family, seed)
    settings = Settings(max_tokens=60, memory_control=0)
    database = f"sqlite:///{out.with_suffix('')}-{family}-{seed}.sqlite"
    async with open_reflexion(settings, evaluator=judge_of(items), database_url=database) as agent:
        if family == "told":
            rules = [{"task": item.text, "text": kind.rule} for item, kind in zip(items, KINDS, strict=False)]
            await Memory(agent.persistence.store).import_lines(map(json.dumps, rules))
        else:
            for n, item in enumerate(items[: LEARNED[family]]):
                await one(agent, out, f"{family}/{seed}/learn/{n}", "learn", item)
        for key, what, item, memory in tests:
            await one(agent, out, key, what, item, max_attempts=1, memory=memory)


async def one(agent: Reflexion, out: Path, key: str, what: str, item: Item, **settings: Any) -> None:
    if key in {made["key"] for made in read(out)}:
        return
    made = line(key, what, await agent.run(item.text, thread=key, **settings))
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(made, ensure_ascii=False) + "\n")
    print(key, made["scores"], f"{made['duration_s']} s", flush=True)


# The table.


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def rate(runs: Sequence[dict[str, Any]]) -> Rate:
    judged = [made["scores"][0] for made in runs if made["scores"] and made["scores"][0] is not None]
    return Rate(sum(score == 1 for score in judged), len(judged))


def once(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first run of each task: seeds may draw the same one, and to the same prompt the model answers the same."""
    texts = {}
    for family, seed in {tuple(made["key"].split("/")[:2]) for made in runs}:
        texts |= {key: item.text for key, _, item, _ in planned(family, int(seed))[1]}
    return list({texts[made["key"]]: made for made in reversed(runs)}.values())


def table(runs: Sequence[dict[str, Any]]) -> None:
    print("\n| family | tasks | seed | with memory | without | difference (95 %) | a lesson was recalled |")
    print("|---|---|---|---:|---:|---:|---:|")
    for family in FAMILIES:
        seeds = sorted({made["key"].split("/")[1] for made in runs if made["key"].startswith(f"{family}/")})
        for what in ("same", "new"):
            for seed in [*seeds, "all, each task once"]:
                tests = [
                    made
                    for made in runs
                    if made["set"] == what and made["key"].startswith(f"{family}/{seed}/" if seed in seeds else family)
                ]
                given = once([made for made in tests if "/with/" in made["key"]])
                one, other = rate(given), rate(once([made for made in tests if "/without/" in made["key"]]))
                found = difference(one, other)
                span = f"{found.value:+.0%} ({found.low:+.0%} to {found.high:+.0%})" if found else "–"
                recalled = sum(bool(made["used"]) for made in given)
                print(
                    f"| {family} | {what} | {seed} | {one.count} of {one.of} | {other.count} of {other.of} | {span} | "
                    f"{recalled} of {len(given)} |"
                )
    learning = [made for made in runs if made["set"] == "learn"]
    passed, in_the_end = rate(learning), sum(made["stop_reason"] == "passed" for made in learning)
    print(
        f"\n{len(runs)} runs, {sum(made['tokens'] for made in runs):,} tokens. Of {passed.of} runs that were learned "
        f"from {passed.count} passed at first and {in_the_end} in the end; "
        f"they stored {sum(len(made['learned']) for made in learning)} lessons."
    )


async def main(out: Path, seeds: Sequence[int]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for family in FAMILIES:
            await run_all(out, family, seed)
    table(read(out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    given = parser.parse_args()
    asyncio.run(main(given.out.absolute(), given.seeds))
