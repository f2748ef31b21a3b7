"""Episodic memory: reflections, lessons, and the database that keeps them."""

from reflexion.memory.choice import Recalled, Wanted, choose, most_alike
from reflexion.memory.effect import Comparison, Effect
from reflexion.memory.locks import ThreadBusy, ThreadLocks
from reflexion.memory.memory import Gone, Memory, open_memory
from reflexion.memory.persistence import DatabaseError, Persistence, default_database_url, open_persistence
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
from reflexion.memory.threads import Pruned, Thread, Threads
from reflexion.memory.transfer import TransferError
from reflexion.memory.worth import KnownLesson

__all__ = [
    "LONGEST_LESSON",
    "LONGEST_TASK",
    "LONGEST_VERDICT",
    "Comparison",
    "DatabaseError",
    "Effect",
    "Episode",
    "Evidence",
    "Experience",
    "Gone",
    "KnownLesson",
    "Lesson",
    "Memory",
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
    "choose",
    "concise",
    "default_database_url",
    "make_lesson",
    "merge_reflections",
    "most_alike",
    "objection",
    "open_memory",
    "open_persistence",
    "task_key",
]
