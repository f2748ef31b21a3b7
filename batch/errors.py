"""What keeps a batch from being worked on; what is wrong with one task is in that task's record."""

from reflexion.nodes import ConfigurationError


class BatchError(ConfigurationError):
    """A batch that cannot be begun or gone on with: what is wrong, with what, and what to do."""


class BatchBusy(BatchError):  # noqa: N818 - a state that callers expect
    """Another process works on the same results."""


class BatchChanged(BatchError):  # noqa: N818 - the same
    """What the finished tasks rest on, settings or a task's text, is not what is given now."""


class NothingPossible(Exception):  # noqa: N818 - an engine's word, not a fault of the task
    """An engine can run no task at all any more; the message says why. What is left is not run."""
