"""Errors that a user can mend: shown as one line, never as a traceback."""

from reflexion.graphs import ConfigurationError
from reflexion.memory import DatabaseError, ThreadBusy, TransferError
from reflexion.models import ModelConfigurationError
from reflexion.models.embedded import EmbeddedModelError
from reflexion.prompts import PromptError

EXPECTED = (
    ConfigurationError,
    DatabaseError,
    EmbeddedModelError,
    ModelConfigurationError,
    PromptError,
    ThreadBusy,
    TransferError,
)


def one_line(error: Exception | str) -> str:
    """A text on one line."""
    return " ".join(str(error).split())
