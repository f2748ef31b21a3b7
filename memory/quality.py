"""Which reflections are worth keeping."""

import re
from difflib import SequenceMatcher

LONGEST = 400
"""Characters. A lesson is a rule, not an essay."""

_GENERIC = re.compile(
    r"^(?:please\s+)?(?:(?:i|we|you)\s+(?:will|should|must|need to)\s+|ich werde\s+|man sollte\s+)?"
    r"(?:try|be|do|work|think|check|read|sei|versuche?|arbeite|prüfe)\b[\w\s,]{0,40}?"
    r"(?:better|harder|again|more careful(?:ly)?|carefully|careful|besser|sorgfältiger|sorgfältig|noch einmal)"
    r"[\w\s]{0,20}[.!]?$",
    re.IGNORECASE,
)
_TO_THE_GRADER = re.compile(
    r"\b(?:ignore|disregard|ignoriere)\b.{0,40}\b(?:rubric|instruction|criteria|test|grader|critic|anweisung|kriterien)"
    r"|\b(?:say|give|return|assign|output|vergib|gib)\b.{0,30}\b(?:score|grade|points|punkte)\b",
    re.IGNORECASE,
)


def objection(text: str, answer: str) -> str:
    """Why a reflection should not become a lesson; empty where nothing speaks against it.

    Args:
        text: the reflection.
        answer: the answer that it is about.
    """
    flat = " ".join(text.split())
    if len(flat.split()) < 3:
        return "too short to be a rule"
    if len(flat) > LONGEST:
        return f"longer than {LONGEST} characters"
    if _TO_THE_GRADER.search(flat):
        return "speaks to the grader, not to the actor"
    if _GENERIC.match(flat):
        return "says nothing about the task"
    if _is_answer(flat, " ".join(answer.split())):
        return "is the answer itself"
    return ""


def _is_answer(text: str, answer: str) -> bool:
    if "def " in text or "```" in text:
        return True
    return SequenceMatcher(None, text.casefold(), answer.casefold()[: 2 * LONGEST], autojunk=False).ratio() > 0.8
