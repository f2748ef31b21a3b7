"""Where the records of one memory lie in the store: by task, so that what belongs to a task is read alone."""

import re
from urllib.parse import quote

LONGEST_NAMESPACE = 128
"""Characters. PostgreSQL's index takes 2,700 bytes, and a character may become twelve of them."""

_ID = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")


class NamespaceError(ValueError):
    """What cannot be the name of a memory: one line that says why."""


def check_namespace(label: object) -> str:
    """The name of a memory as it is, if it can be one.

    Raises:
        NamespaceError: it is no text, empty, too long, or holds half a character.
    """
    if not isinstance(label, str):
        raise NamespaceError(f"namespace {label!r} is no text")
    if not label.strip():
        raise NamespaceError("the namespace is empty: give it a name such as shop/anna")
    if len(label) > LONGEST_NAMESPACE:
        raise NamespaceError(f"the namespace has {len(label)} characters; {LONGEST_NAMESPACE} are the most")
    try:
        label.encode()
    except UnicodeEncodeError as error:
        raise NamespaceError(f"namespace {label!r} holds half a character") from error
    return label


def is_lesson_id(key: str) -> bool:
    """Whether a lesson may have this id: the key of its task, and a digest of task and text."""
    return _ID.fullmatch(key) is not None


class Places:
    """The store's namespaces of one memory."""

    def __init__(self, label: str) -> None:
        """Take a name.

        Raises:
            NamespaceError: it can be none.
        """
        # Percent signs, digits and letters: the separator of the stores is the full stop.
        name = quote(check_namespace(label), safe="").replace(".", "%2E")
        self.lessons = ("reflexion", "lessons", name)
        self.experiences = ("reflexion", "experiences", name)
        self.episodes = ("reflexion", "episodes", name)
        self.form = ("reflexion", "form", name)

    def of_lesson(self, key: str) -> tuple[str, ...]:
        """Of the lesson with this id, and of all others of its task."""
        return self.of_task(key.partition("-")[0])

    def of_task(self, task_key: str) -> tuple[str, ...]:
        """Of the lessons of a task."""
        return (*self.lessons, task_key)

    def of_uses(self, lesson_id: str) -> tuple[str, ...]:
        """Of what runs made of a lesson."""
        return (*self.experiences, lesson_id)

    def of_runs(self, task_key: str) -> tuple[str, ...]:
        """Of how the runs of a task went."""
        return (*self.episodes, task_key)
