"""How alike two tasks are: by what they mean, and by the characters they share."""

import math
from collections import Counter
from collections.abc import Sequence

from reflexion.memory.records import LONGEST_TASK

GRAM = 4
"""Characters."""

MEANING = 0.5
"""Share of the meaning in the likeness, 0..1; the rest is the words'.

Anything from 0.4 to 0.6 finds as many; less misses what is put in other words, more takes tasks of one family for each
other. Chosen on one half of the tasks of `benchmarks/recall_quality.py`.
"""


def hybrid(query: str, found: Sequence[tuple[float, str]]) -> list[float]:
    """The likeness of each text that a store has found to the query, 0..1, by meaning and by words.

    Args:
        query: a task.
        found: texts, each with the score that the store gave it, -1..1: the cosine of the embeddings, or where there
            are none the likeness by words, which is then all that counts.

    Takes some 10 ms for 50 short tasks: call it in a thread.
    """
    texts = list(dict.fromkeys(text for _, text in found))
    words = dict(zip(texts, rank(query, texts), strict=True))
    return [MEANING * min(1.0, max(0.0, score)) + (1 - MEANING) * words[text] for score, text in found]


def rank(query: str, texts: Sequence[str]) -> list[float]:
    """The likeness of each text to the query, 0..1, as cosine of TF-IDF weighted 4-grams; knows every language.

    The document frequencies are those of the texts themselves, so what all tasks of a family say
    ("write a function that …") counts for little. Identical texts have a likeness of 1.
    """
    documents = [_grams(text) for text in texts]
    asked = _grams(query)
    frequency: Counter[str] = Counter(gram for document in [*documents, asked] for gram in document)
    total = len(documents) + 1
    weight = {gram: math.log((1 + total) / (1 + count)) + 1 for gram, count in frequency.items()}
    query_vector = _weighted(asked, weight)
    return [_cosine(query_vector, _weighted(document, weight)) for document in documents]


def _grams(text: str) -> Counter[str]:
    flat = f" {' '.join(text.casefold().split())[:LONGEST_TASK]} "
    return Counter(flat[i : i + GRAM] for i in range(max(1, len(flat) - GRAM + 1)))


def _weighted(grams: Counter[str], weight: dict[str, float]) -> dict[str, float]:
    return {gram: (1 + math.log(count)) * weight[gram] for gram, count in grams.items()}


def _cosine(one: dict[str, float], other: dict[str, float]) -> float:
    if len(other) < len(one):
        one, other = other, one
    dot = sum(value * other[gram] for gram, value in one.items() if gram in other)
    length = math.sqrt(sum(v * v for v in one.values()) * sum(v * v for v in other.values()))
    return min(1.0, dot / length) if length else 0.0
