"""How long embedding one text takes, and what a second processor core brings.

Medians of 31 texts each, in turn; relative to the words' share of a recall: `likeness.rank` over 50 short tasks.

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


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


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
    times: dict[str, list[float]] = {name: [] for name in ways}
    for n in range(ROUNDS):
        for name, way in ways.items():
            times[name].append(seconds(lambda way=way, n=n: way(n)))
    unit = median(times[next(iter(ways))])
    print("| | ms | relative |\n|---|---:|---:|")
    for name, each in times.items():
        print(f"| {name} | {1000 * median(each):.1f} | {median(each) / unit:.2f} |")
    print(f"| loading, once | {1000 * loaded[1]:.0f} | {loaded[1] / unit:.0f} |")


if __name__ == "__main__":
    main()
