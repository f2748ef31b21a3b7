"""Episodic memory: reflections, lessons, and the database that keeps them."""

from reflexion.memory.lessons import Lessons, most_alike
from reflexion.memory.locks import ThreadBusy, ThreadLocks
from reflexion.memory.persistence import DatabaseError, Persistence, default_database_url, open_persistence
from reflexion.memory.quality import LONGEST as LONGEST_LESSON
from reflexion.memory.quality import objection
from reflexion.memory.records import (
    LONGEST_TASK,
    Lesson,
    RecalledLesson,
    Reflection,
    as_lesson,
    lesson_id,
    merge_reflections,
)

__all__ = [
    "LONGEST_LESSON",
    "LONGEST_TASK",
    "DatabaseError",
    "Lesson",
    "Lessons",
    "Persistence",
    "RecalledLesson",
    "Reflection",
    "ThreadBusy",
    "ThreadLocks",
    "as_lesson",
    "default_database_url",
    "lesson_id",
    "merge_reflections",
    "most_alike",
    "objection",
    "open_persistence",
]
