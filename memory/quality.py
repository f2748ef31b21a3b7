"""Which reflections are worth keeping.

Of 2,870 recorded reflections on HumanEval, MBPP, AlfWorld and WebShop these rules refuse none. 170 are longer than a
rule should be: they say first what to do, and then, in sentence after sentence, that one is to look carefully.
"""

import re
from difflib import SequenceMatcher

LONGEST = 600
"""Characters. A lesson is a rule, not an essay."""

_END_OF_SENTENCE = re.compile(r"""(?:(?<=\w\w)|(?<=[)\]"'`»”]))[.!?](?=\s)|[。！？]""")  # "1." and "e.g." end none
_WORD = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]|\w+")
_FILLER = (
    r"(?:\s+(?:to|the|my|your|our|this|that|all|it|a|bit|little|much|even|everything|task|work|job|answers?|code|"
    r"solution|problem|question|instructions|more|and|try|be|do|"
    r"die|das|der|den|alles|es|aufgabe|antwort|lösung|arbeit|frage|viel|etwas|zu|und|mal|nächstes))*"
)
_GENERIC = re.compile(
    r"^(?:please\s+|next time,?\s+|nächstes mal\s+)?"
    r"(?:(?:i|we|you|one)\s+(?:will|should|must|need to|have to)\s+|(?:ich werde|man sollte|ich sollte)\s+)?"
    r"(?:try|be|do|work|think|check|read|sei|versuche?|arbeite|prüfe|denke?|lies|es|das)\b" + _FILLER + r"\s+"
    r"(?:better|best|harder|again|twice|careful(?:ly)?|thorough(?:ly)?|precise(?:ly)?|"
    r"besser|genauer|gründlicher|sorgfältig(?:er)?|noch\s+einmal)"
    r"(?:\s+(?:next time|this time|now|in (?:the )?future|nächstes mal|machen|sein|prüfen|arbeiten|lesen|zu machen))*"
    r"\s*[.!]?$",
    re.IGNORECASE,
)
_MARK = r"(?:scores?|grades?|marks|points|punkt\w*|note|bewertung)"
_TOP = r"(?:10|100|1\.0|full|perfect|highest|top|maximum|voll\w*|höchst\w*|best\w*)"
_TO_THE_GRADER = re.compile(
    r"\b(?:ignore|disregard|ignoriere)\b.{0,40}\b(?:rubric|instructions|grader|critic|judge|anweisungen|prüfer|kritiker)\b"
    r"|\b(?:say|give|assign|award|sag|gib|vergib)\b.{0,40}?"
    rf"\b(?:{_MARK}\b.{{0,15}}\b{_TOP}|{_TOP}\b.{{0,15}}\b{_MARK})\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"```|\bdef \w+\([^)]*\)[^:]*:\s*(?:return|if|for|while|try|with|\w+\s*=)\b")


def concise(text: str) -> str:
    """As many of the first sentences as a lesson has room for; the whole text where all of it or none of them fits."""
    flat = " ".join(text.split())
    if len(flat) <= LONGEST:
        return text
    ends = [found.end() for found in _END_OF_SENTENCE.finditer(flat) if found.end() <= LONGEST]
    return flat[: ends[-1]] if ends else text


def objection(text: str, answer: str, verdict: str = "") -> str:
    """Why a reflection should not become a lesson; empty where nothing speaks against it.

    Args:
        text: the reflection.
        answer: the answer that it is about.
        verdict: what the evaluator said of the answer.
    """
    flat = " ".join(text.split())
    if len(_WORD.findall(flat)) < 3:
        return "too short to be a rule"
    if len(flat) > LONGEST:
        return f"longer than {LONGEST} characters"
    if _TO_THE_GRADER.search(flat):
        return "speaks to the grader, not to the actor"
    if _GENERIC.match(flat):
        return "says nothing about the task"
    if flat.casefold().rstrip(".") in " ".join(verdict.split()).casefold():
        return "repeats the verdict"
    if _CODE.search(flat) or _alike(flat, " ".join(answer.split())):
        return "is the answer itself"
    return ""


def _alike(text: str, answer: str) -> bool:
    return SequenceMatcher(None, text.casefold(), answer.casefold()[: 2 * LONGEST], autojunk=False).ratio() > 0.8
