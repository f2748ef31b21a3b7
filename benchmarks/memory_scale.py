"""What recalling and writing a lesson costs in a database that holds ever more of them, and what is found.

DATA is a folder with the tasks of public benchmarks (HumanEval, MBPP, GSM8K, HotpotQA, AlfWorld, BIG-Bench Hard).
Embedding a million texts would take hours, so the lessons are variants of these 4,600 tasks: some words of each come
from another task, and its vector is the embedded model's vector of the task, moved towards that of the other task and
in a random direction. The database is filled to each size in turn. A search is asked for 20 items; its time leaves
out the query's own embedding, which is shown beside it. "Found" is the share of the ten lessons with the likest
vectors, by comparing all, that are among the 20. "By words" searches the same database without embeddings.

    uv run python benchmarks/memory_scale.py DATA [--database URL] [--sizes 1000,10000,100000] [--queries 100]
"""

import argparse
import asyncio
import gzip
import json
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp

from reflexion.memory import make_lesson, open_persistence
from reflexion.memory.places import Places
from reflexion.models.embedding import chosen

LESSONS = Places("scale").lessons
LONGEST = 400
"""Characters of a task."""
BATCH = 2_000
QUERIES_FROM = 1_000_000_000
"""Numbers of the variants that are asked for, and from twice that on of those that are written one by one."""


def tasks(data: Path) -> list[str]:
    """Every task once."""
    found: list[str] = []
    for file in sorted(data.rglob("*")):
        opened = gzip.open if file.suffix == ".gz" else open
        if file.name.endswith((".jsonl", ".jsonl.gz")):
            with opened(file, "rt", encoding="utf-8") as lines:
                found += [text(json.loads(line)) for line in lines]
        elif file.suffix == ".json":
            read = json.loads(file.read_text(encoding="utf-8"))
            found += [text(each) for each in (read["examples"] if isinstance(read, dict) else read)]
    return list(dict.fromkeys(each[:LONGEST] for each in found))


def text(task: dict[str, Any]) -> str:
    return next(task[field] for field in ("prompt", "question", "goal", "input") if field in task)


class Variants(Embeddings):
    """Any number of tasks made out of a few, with their vectors."""

    def __init__(self, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> None:
        self._words = [each.split() for each in texts]
        self._vectors = np.asarray(vectors, np.float32)
        dimensions = self._vectors.shape[1]
        noise = np.random.default_rng(0).standard_normal(1_000_000, np.float32) * 0.4 / np.sqrt(dimensions)
        self._directions = np.lib.stride_tricks.sliding_window_view(noise, dimensions)

    def task(self, number: int) -> str:
        """The task with this number: a sixth of its words are another task's."""
        drawn = _drawn(np.array([number]))
        one, other = (self._words[int(drawn[part][0] % len(self._words))] for part in (0, 1))
        first = number % 6
        mixed = [other[n % len(other)] if n % 6 == first else word for n, word in enumerate(one)]
        return f"{' '.join(mixed)} (variant {number})"

    def vectors(self, numbers: Sequence[int]) -> np.ndarray:
        """Their vectors, of length 1."""
        one, other, share, direction = _drawn(np.asarray(numbers))
        part = (share % 1024 / 1024 * 0.3).astype(np.float32)[:, None]
        mixed = (1 - part) * self._vectors[one % len(self._vectors)] + part * self._vectors[other % len(self._vectors)]
        moved = mixed + self._directions[direction % len(self._directions)]
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of variants; any other text is taken for one."""
        numbers = [re.search(r"\(variant (\d+)\)$", each) for each in texts]
        return self.vectors([int(number[1]) if number else 0 for number in numbers]).tolist()

    def embed_query(self, text: str) -> list[float]:
        """The vector of one of them."""
        return self.embed_documents([text])[0]


def _drawn(numbers: np.ndarray) -> np.ndarray:
    """Four random numbers for each, always the same ones: the generator splitmix64 (Steele et al. 2014)."""
    seeds = numbers.astype(np.uint64)[None] * np.uint64(4) + np.arange(4, dtype=np.uint64)[:, None]
    seeds = seeds * np.uint64(0x9E3779B97F4A7C15)
    seeds = (seeds ^ (seeds >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    seeds = (seeds ^ (seeds >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (seeds ^ (seeds >> np.uint64(31))) >> np.uint64(16)


def put(task: str, number: int) -> PutOp:
    lesson = make_lesson(task, f"Check the edge cases of variant {number} before you return the result.", number)
    return PutOp((*LESSONS, lesson["task_key"]), lesson["id"], dict(lesson), index=["task"])


class Likest:
    """The ten likest lessons of each query, by comparing all of them."""

    def __init__(self, queries: np.ndarray) -> None:
        self._queries = queries
        self._scores = np.full((len(queries), 10), -2, np.float32)
        self.numbers = np.zeros((len(queries), 10), np.int64)

    def add(self, numbers: Sequence[int], vectors: np.ndarray) -> None:
        """More lessons."""
        scores = np.hstack([self._scores, self._queries @ vectors.T])
        everyone = np.hstack([self.numbers, np.broadcast_to(numbers, (len(self._queries), len(numbers)))])
        best = np.argpartition(-scores, 10, axis=1)[:, :10]
        self._scores, self.numbers = (np.take_along_axis(each, best, axis=1) for each in (scores, everyone))


async def timed(work: Sequence[Callable[[], Awaitable[Any]]]) -> tuple[np.ndarray, list[Any]]:
    """Milliseconds of each, by the clock and of this process on a processor, and what came of it."""
    times, results = [], []
    for each in work:
        clock, processor = time.perf_counter(), time.process_time()
        results.append(await each())
        times.append(((time.perf_counter() - clock) * 1000, (time.process_time() - processor) * 1000))
    return np.array(times), results


def batches(start: int, end: int) -> Iterator[range]:
    return (range(first, min(first + BATCH, end)) for first in range(start, end, BATCH))


def show(times: np.ndarray) -> str:
    """p50 / p95 by the clock, and p50 on a processor."""
    (p50, busy), (p95, _) = np.percentile(times, 50, axis=0), np.percentile(times, 95, axis=0)
    return f"{p50:.1f} / {p95:.1f} ({busy:.1f})"


async def measure(url: str, variants: Variants, sizes: Sequence[int], asked: int) -> None:
    queries = [variants.task(QUERIES_FROM + n) for n in range(asked)]
    likest = Likest(variants.vectors(range(QUERIES_FROM, QUERIES_FROM + asked)))
    model = chosen(True)
    if model:
        await model.aembed_query("warm up")
        embedding, _ = await timed([lambda q=q: model.aembed_query(q) for q in queries])
        print(
            f"Milliseconds, p50 / p95 (p50 on a processor of this process). Embedding of a query: {show(embedding)}\n"
        )
    print("| lessons | search | search by words | write | MB | bytes a lesson | found |"
          " growth: lessons, search, by words, write |\n|" + "---:|" * 8)  # fmt: skip
    filled, before = 0, None
    for size in sizes:
        async with open_persistence(url, embeddings=variants) as database:
            for numbers in batches(filled, size):
                likest.add(numbers, variants.vectors(numbers))
                await database.store.abatch([put(variants.task(n), n) for n in numbers])
        filled = size
        async with open_persistence(url, embeddings=variants) as database:
            work = [lambda q=q: database.store.asearch(LESSONS, query=q, limit=20) for q in queries]
            await timed(work[:10])
            search, found = await timed(work)
            puts = [put(variants.task(n), n) for n in range(2 * QUERIES_FROM, 2 * QUERIES_FROM + asked)]
            written, _ = await timed([lambda each=each: database.store.abatch([each]) for each in puts])
            await database.store.abatch([each._replace(value=None) for each in puts])
            bytes_in_all = await database.size_bytes() or 0
        async with open_persistence(url, embeddings=False) as database:
            work = [lambda q=q: database.store.asearch(LESSONS, query=q, limit=20) for q in queries]
            await timed(work[:10])
            worded, _ = await timed(work)
        right = [
            len({f"(variant {n})" for n in best} & {f"(variant {item.value['created_at']})" for item in items}) / 10
            for best, items in zip(likest.numbers, found, strict=True)
        ]
        now = np.array([size, *(np.percentile(each[:, 0], 50) for each in (search, worded, written))])
        growth = "" if before is None else ", ".join(f"× {ratio:.1f}" for ratio in now / before)
        before = now
        print(f"| {size:,} | {show(search)} | {show(worded)} | {show(written)} | {bytes_in_all / 1e6:.1f} | "
              f"{bytes_in_all / size:.0f} | {np.mean(right):.1%} | {growth} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--database", help="URL of an empty database; a new SQLite file where it is left out")
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--queries", type=int, default=100)
    args = parser.parse_args()
    texts = tasks(args.data)
    model = chosen(True)
    if model is None:
        parser.error("the embedded model for embeddings is not installed")
    variants = Variants(texts, model.embed_documents(texts))
    sizes = [int(size) for size in args.sizes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        url = args.database or f"sqlite:///{Path(folder) / 'scale.sqlite'}"
        asyncio.run(measure(url, variants, sizes, args.queries))


if __name__ == "__main__":
    main()
