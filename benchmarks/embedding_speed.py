"""How long embedding one text takes, and what a second processor core brings.

Medians of 31 texts each, in turn; relative to the words' share of a recall: `likeness.rank` over 50 short tasks.
On a busy machine the processor's time says more than the clock's.

    uv run python benchmarks/embedding_speed.py
"""

import time
from collections.abc import Callable
from statistics import median

from reflexion.memory.choice import CONSIDERED
from reflexion.memory.likeness import rank
from reflexion.models.embedding import MiniLM, find_weights

ROUNDS = 31
WORDS = ("sort", "list", "number", "text", "first", "last", "count", "sum", "word", "pair", "index", "value", "read")


def text(tokens: int, start: int) -> str:
    """A text of so many tokens, its two marks included: each of the words is one."""
    return " ".join(WORDS[(start + 7 * n) % len(WORDS)] for n in range(tokens - 2))


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of all processor cores."""
    clock, cores = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - cores


def main() -> None:
    """Measure, and print a table."""
    models = {threads: MiniLM(find_weights(), threads=threads) for threads in (1, 2)}
    loaded = {threads: seconds(lambda model=model: model.embed_query("a")) for threads, model in models.items()}
    ways: dict[str, Callable[[int], object]] = {
        f"4-grams of {CONSIDERED} tasks": lambda n: rank(text(30, n), [text(30, n + k) for k in range(CONSIDERED)])
    }
    for tokens in (30, 250):
        for threads, model in models.items():
            name = f"embedding, {tokens} tokens, {threads} core{'s' * (threads > 1)}"
            ways[name] = lambda n, model=model, tokens=tokens: model.embed_query(text(tokens, n))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for n in range(ROUNDS):
        for name, way in ways.items():
            times[name].append(seconds(lambda way=way, n=n: way(n)))
    times["loading, once"] = [loaded[1]]
    middle = {name: [median(kind) for kind in zip(*each, strict=True)] for name, each in times.items()}
    unit = middle[next(iter(ways))]
    print("| | ms | relative | ms of processor | relative |\n|---|---:|---:|---:|---:|")
    for name, (clock, cores) in middle.items():
        print(f"| {name} | {1e3 * clock:.1f} | {clock / unit[0]:.2f} | {1e3 * cores:.1f} | {cores / unit[1]:.2f} |")


if __name__ == "__main__":
    main()
