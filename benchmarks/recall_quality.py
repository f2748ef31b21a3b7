"""Given a task, is the lesson of the same task found among those of 1,700 others, also when it is put in other words?

DATA: see `recall_data.py`. Every stored task has a lesson. Weight and thresholds of memory were chosen on one half of
the tasks that are asked for; the other half is reported here. Four ways to search the tasks are compared:

- hybrid: as memory does it. Half of the `CONSIDERED` candidates by the embeddings' cosine and half by full text, then
  `likeness.hybrid`. `--through sqlite:////tmp/new.sqlite` has a real store choose the candidates.
- full text: SQLite's FTS5 with the porter tokenizer, any word of the task, best BM25 first.
- 4-grams: `likeness.rank` over all tasks.
- embeddings: the cosine alone.

And langmem's way (langmem 0.0.30, `knowledge/extraction.py`): `MemoryStoreManager` puts a memory as `{"kind": …,
"content": …}` without naming what is indexed, so that the store embeds the JSON of it all, and asks the store for
what is being talked about; so what is compared with the task is the lesson, not its task. Taken from it: what is
embedded, and what is asked. The embeddings are the same for both. It is compared on the tasks whose lessons are known:
what recorded runs of the Reflexion paper have written. Its model calls, which could rewrite query or memory, are left
out.

Takes ten minutes, most of them for the 4-grams.

    uv run python benchmarks/recall_quality.py DATA [--choosing] [--through URL]
"""

import argparse
import asyncio
import json
import math
import random
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from langgraph.store.base import PutOp, SearchOp
from recall_data import Asked, Task, asked, stored

from reflexion.memory import open_persistence
from reflexion.memory.choice import AS_LIKE, CONSIDERED, LEAST_LIKENESS
from reflexion.memory.likeness import hybrid, rank
from reflexion.models.embedding import chosen
from reflexion.models.intervals import Rate, Z

SIZES = (20, 100, 1000)
"""Lessons in the store, for the hits and misses around the threshold."""
MOST_ASKED = 80
"""Of one kind, for those: each is searched for in six stores."""

Vector = np.ndarray
Search = Callable[[Asked, Vector, Vector], dict[int, float]]
"""Gives the likeness of what it finds, by number of the task, for what is asked, its vector, and what may be found."""


class Shelf:
    """Tasks, their vectors, and their full text."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)
        self.texts = [task.text for task in self.tasks]
        self.vectors = vectors(self.texts)
        self.number = {task.id: number for number, task in enumerate(self.tasks)}
        self.family = np.array([task.family for task in self.tasks])
        self._words = sqlite3.connect(":memory:")
        self._words.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61')")
        self._words.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", enumerate(self.texts))

    def by_words(self, question: Asked, vector: Vector, within: Vector) -> dict[int, float]:
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", question.text.casefold())))
        found = self._words.execute(
            "SELECT rowid, -bm25(words) FROM words WHERE words MATCH ? ORDER BY 2 DESC", [words]
        )
        return {number: score for number, score in found if within[number]}

    def by_grams(self, question: Asked, vector: Vector, within: Vector) -> dict[int, float]:
        numbers = np.flatnonzero(within).tolist()
        return dict(zip(numbers, rank(question.text, [self.texts[n] for n in numbers]), strict=True))

    def by_meaning(self, question: Asked, vector: Vector, within: Vector) -> dict[int, float]:
        cosines = self.vectors @ vector
        return {number: float(cosines[number]) for number in np.flatnonzero(within).tolist()}

    def as_memory_does(self, question: Asked, vector: Vector, within: Vector) -> dict[int, float]:
        cosines = self.by_meaning(question, vector, within)
        likest = sorted(cosines, key=cosines.__getitem__, reverse=True)[: CONSIDERED // 2]
        likest += list(self.by_words(question, vector, within))[: CONSIDERED // 2]
        return self.weighed(question, {number: cosines[number] for number in likest})

    def weighed(self, question: Asked, scores: dict[int, float]) -> dict[int, float]:
        found = hybrid(question.text, [(score, self.texts[number]) for number, score in scores.items()])
        return dict(zip(scores, found, strict=True))

    def others(self, question: Asked) -> Vector:
        """What is stored while this is asked."""
        return self.family != question.without


def vectors(texts: Sequence[str]) -> Vector:
    model = chosen(True)
    assert model is not None
    return np.array(model.embed_documents(list(texts)), np.float32)


def place(found: dict[int, float], own: int) -> float:
    """Of the right one, 1 for the first; infinite where it is not found."""
    return 1 + sum(score > found[own] for score in found.values()) if own in found else math.inf


def at_first(places: Sequence[float]) -> str:
    rate = Rate(sum(place == 1 for place in places), len(places))
    return f"{rate.value:.2f} [{rate.low:.2f}–{rate.high:.2f}]"


def reciprocal(places: Sequence[float]) -> str:
    values = [1 / place for place in places]
    half = Z * stdev(values) / math.sqrt(len(values))
    return f"{fmean(values):.2f} [{max(0.0, fmean(values) - half):.2f}–{min(1.0, fmean(values) + half):.2f}]"


def table(title: str, columns: Sequence[str], rows: dict[str, list[str]]) -> None:
    print(f"\n{title}\n\n| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def of_kinds(questions: Sequence[Asked]) -> dict[str, list[Asked]]:
    kinds = defaultdict(list)
    for question in questions:
        kinds[question.kind].append(question)
    return kinds


def show_places(shelf: Shelf, questions: Sequence[Asked], ways: dict[str, Search]) -> None:
    """Recall at 1 and mean reciprocal rank of every way, by kind of question."""
    firsts, ranks = {}, {}
    for kind, group in of_kinds(questions).items():
        places = {name: [] for name in ways}
        for question, vector in zip(group, vectors([each.text for each in group]), strict=True):
            for name, search in ways.items():
                found = search(question, vector, shelf.others(question))
                places[name].append(place(found, shelf.number[question.own]))
        count = fmean(shelf.others(question).sum() for question in group)
        row = f"{kind} ({len(group)})"
        firsts[row] = [*map(at_first, places.values()), f"{1 / count:.3f}"]
        ranks[row] = [*map(reciprocal, places.values()), f"{(math.log(count) + 0.577) / count:.3f}"]
    table("recall@1 with 95 % interval", [*ways, "random"], firsts)
    table("mean reciprocal rank with 95 % interval", [*ways, "random"], ranks)


def show_threshold(shelf: Shelf, questions: Sequence[Asked]) -> None:
    """How many lessons of the task itself are missed, and how often another's is recalled where it has none."""
    rows, near = {}, []
    for kind, group in of_kinds(questions).items():
        cells = []
        for size in SIZES:
            chance, missed, mistaken = random.Random(size), 0, 0
            for question, vector in zip(group[:MOST_ASKED], vectors([q.text for q in group[:MOST_ASKED]]), strict=True):
                own = shelf.number[question.own]
                within = some_others(shelf, question, size, chance)
                mistaken += max(shelf.as_memory_does(question, vector, within).values()) >= LEAST_LIKENESS
                within[own] = True
                found = shelf.as_memory_does(question, vector, within)
                missed += found.get(own, 0.0) < LEAST_LIKENESS
                if size == 100 and found.get(own, 0.0) >= LEAST_LIKENESS:
                    near.append(any(other != own and like >= found[own] - AS_LIKE for other, like in found.items()))
            asked_for = len(group[:MOST_ASKED])
            cells += [f"{100 * missed / asked_for:.0f} %", f"{100 * mistaken / asked_for:.0f} %"]
        rows[f"{kind} ({len(group[:MOST_ASKED])})"] = cells
    columns = [f"{what}, {size}" for size in SIZES for what in ("missed", "another's")]
    table(
        f"threshold {LEAST_LIKENESS}: own lesson missed; without one, another's recalled; by lessons stored",
        columns,
        rows,
    )
    print(f"\nof 100 lessons, another task's is as like within {AS_LIKE} in {100 * fmean(near):.0f} % of the hits")


def some_others(shelf: Shelf, question: Asked, size: int, chance: random.Random) -> Vector:
    """Other tasks, half of them of the same family, as far as it has so many."""
    own = shelf.number[question.own]
    same = [n for n in range(len(shelf.tasks)) if shelf.family[n] == shelf.family[own] and n != own]
    rest = np.flatnonzero(shelf.others(question) & (shelf.family != shelf.family[own])).tolist()
    picked = chance.sample(same, min(len(same), size // 2))
    within = np.zeros(len(shelf.tasks), bool)
    within[[*picked, *chance.sample(rest, size - len(picked))]] = True
    return within


def show_langmem(shelf: Shelf, questions: Sequence[Asked], *, choosing: bool) -> None:
    """langmem's way against memory's, on the tasks whose lessons are known."""
    known = Shelf([task for task in shelf.tasks if task.lessons])
    lessons = [(number, text) for number, task in enumerate(known.tasks) for text in task.lessons]
    stored_json = [{"content": {"content": text}, "kind": "Memory"} for _, text in lessons]
    contents = vectors([json.dumps(each, sort_keys=True, ensure_ascii=False) for each in stored_json])
    rows = {}
    own_words = [Asked("the same words", task.text, task.id) for task in known.tasks]
    half = [question for question in own_words if question.chooses == choosing]
    others = [each for each in questions if each.own in known.number and each.kind != "the same words"]
    for kind, group in of_kinds(half + others).items():
        places = {"langmem": [], "embeddings": [], "hybrid": []}
        for question, vector in zip(group, vectors([each.text for each in group]), strict=True):
            own, within = known.number[question.own], known.others(question)
            likest: dict[int, float] = {}  # a task counts by its likest lesson
            for (number, _), score in zip(lessons, (contents @ vector).tolist(), strict=True):
                likest[number] = max(score, likest.get(number, -1.0))
            places["langmem"].append(place(likest, own))
            places["embeddings"].append(place(known.by_meaning(question, vector, within), own))
            places["hybrid"].append(place(known.as_memory_does(question, vector, within), own))
        rows[f"{kind} ({len(group)})"] = [f"{at_first(each)}, {reciprocal(each)}" for each in places.values()]
    title = f"recall@1, MRR: {len(lessons)} recorded lessons of {len(known.tasks)} tasks"
    table(title, ["langmem: the lesson embedded", "the task embedded", "the task, hybrid"], rows)


async def through(url: str, shelf: Shelf, questions: Sequence[Asked]) -> dict[Asked, dict[int, float]]:
    """What a store of ours finds for each question among all tasks."""
    prefix = ("reflexion", "lessons", "recall_quality")
    async with open_persistence(url) as persistence:
        for start in range(0, len(shelf.texts), 100):
            numbers = range(start, min(start + 100, len(shelf.texts)))
            await persistence.store.abatch(
                [PutOp((*prefix, str(n)), str(n), {"task": shelf.texts[n]}, index=["task"]) for n in numbers]
            )
        found = {}
        for question in questions:
            (items,) = await persistence.store.abatch([SearchOp(prefix, limit=CONSIDERED, query=question.text)])
            found[question] = {int(item.key): item.score for item in items}
    return found


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with tasks and recorded runs")
    parser.add_argument("--choosing", action="store_true", help="the half on which weight and thresholds were chosen")
    parser.add_argument("--through", metavar="URL", help="a new database, for a column more of the hybrid")
    given = parser.parse_args()
    tasks = stored(given.data)
    shelf = Shelf(list({id(task): task for task in tasks.values()}.values()))
    everything = asked(given.data, tasks)
    questions = [each for each in everything if each.chooses == given.choosing]
    ways: dict[str, Search] = {
        "hybrid": shelf.as_memory_does,
        "full text": shelf.by_words,
        "4-grams": shelf.by_grams,
        "embeddings": shelf.by_meaning,
    }
    if given.through:
        scores = asyncio.run(through(given.through, shelf, questions))
        ways["hybrid, by the store"] = lambda question, _, within: shelf.weighed(
            question, {number: score for number, score in scores[question].items() if within[number]}
        )
    print(f"{len(shelf.tasks)} tasks stored, {len(questions)} asked for")
    show_places(shelf, questions, ways)
    show_threshold(shelf, questions)
    show_langmem(shelf, questions, choosing=given.choosing)


if __name__ == "__main__":
    main()
