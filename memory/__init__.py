"""Episodic memory: reflections, lessons, and the database that keeps them."""

from reflexion.memory.choice import MOST_TOKENS, Recalled, Wanted, choose, most_alike
from reflexion.memory.decisions import Change, refusal
from reflexion.memory.effect import Comparison, Effect
from reflexion.memory.locks import ThreadBusy, ThreadLocks
from reflexion.memory.memory import Gone, Memory, open_memory
from reflexion.memory.persistence import DatabaseError, Persistence, default_database_url, open_persistence
from reflexion.memory.places import NamespaceError, check_namespace
from reflexion.memory.quality import LONGEST as LONGEST_LESSON
from reflexion.memory.quality import concise, objection
from reflexion.memory.records import (
    LONGEST_TASK,
    LONGEST_VERDICT,
    Episode,
    Evidence,
    Experience,
    Lesson,
    RecalledLesson,
    Reflection,
    Use,
    make_lesson,
    merge_reflections,
    task_key,
)
from reflexion.memory.room import MOST_LESSONS, Keep
from reflexion.memory.threads import Pruned, Thread, Threads
from reflexion.memory.transfer import TransferError
from reflexion.memory.worth import KnownLesson, know

__all__ = [
    "LONGEST_LESSON",
    "LONGEST_TASK",
    "LONGEST_VERDICT",
    "MOST_LESSONS",
    "MOST_TOKENS",
    "Change",
    "Comparison",
    "DatabaseError",
    "Effect",
    "Episode",
    "Evidence",
    "Experience",
    "Gone",
    "Keep",
    "KnownLesson",
    "Lesson",
    "Memory",
    "NamespaceError",
    "Persistence",
    "Pruned",
    "Recalled",
    "RecalledLesson",
    "Reflection",
    "Thread",
    "ThreadBusy",
    "ThreadLocks",
    "Threads",
    "TransferError",
    "Use",
    "Wanted",
    "check_namespace",
    "choose",
    "concise",
    "default_database_url",
    "know",
    "make_lesson",
    "merge_reflections",
    "most_alike",
    "objection",
    "open_memory",
    "open_persistence",
    "refusal",
    "task_key",
]
