"""Which of two texts say the same, so that one is kept; needs no model."""

import re
from collections import Counter
from collections.abc import Iterable

from reflexion.memory.likeness import rank
from reflexion.memory.records import Lesson

SAME_RULE = 0.85
"""Likeness from which two lessons of one task say the same.

Measured on recorded reflections by benchmarks/reflections_kept.py: what is above it adds or drops a clause at most.
"""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NEGATION = re.compile(r"\b(?:not?|never|none|without|\w+n['’]t|cannot|nicht|kein\w*|nie|ohne)\b", re.IGNORECASE)


def same_rule(lesson: Lesson, known: Iterable[Lesson]) -> Lesson | None:
    """The lesson of the same task that says the same, the likest first; None where none does."""
    of_task = [other for other in known if other["task_key"] == lesson["task_key"]]
    for other in of_task:
        if other["id"] == lesson["id"]:
            return other
    alike = [other for other in of_task if _tells_apart(other["text"]) == _tells_apart(lesson["text"])]
    if not alike:
        return None
    # One by one: among each other the texts of a task are alike, and what they share would count for nothing.
    score, best = max(((rank(lesson["text"], [other["text"]])[0], other) for other in alike), key=lambda each: each[0])
    return best if score >= SAME_RULE else None


def _tells_apart(text: str) -> tuple[Counter[str], int]:
    """Numbers, and how often something is negated: a small difference in the letters, and none in the meaning."""
    return Counter(_NUMBER.findall(text)), len(_NEGATION.findall(text))
