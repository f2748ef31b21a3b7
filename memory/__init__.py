"""Episodic memory: reflections, lessons, and the database that keeps them."""

from reflexion.memory.lessons import Lessons
from reflexion.memory.locks import ThreadBusy, ThreadLocks
from reflexion.memory.persistence import DatabaseError, Persistence, default_database_url, open_persistence
from reflexion.memory.quality import objection
from reflexion.memory.records import Lesson, RecalledLesson, Reflection, lesson_id, merge_reflections

__all__ = [
    "DatabaseError",
    "Lesson",
    "Lessons",
    "Persistence",
    "RecalledLesson",
    "Reflection",
    "ThreadBusy",
    "ThreadLocks",
    "default_database_url",
    "lesson_id",
    "merge_reflections",
    "objection",
    "open_persistence",
]
