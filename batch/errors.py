"""What keeps a batch from being worked on; what is wrong with one task is in that task's record."""

from collections.abc import Mapping
from typing import Any

from reflexion.nodes import ConfigurationError


class BatchError(ConfigurationError):
    """A batch that cannot be begun or gone on with: what is wrong, with what, and what to do."""


class OptionError(BatchError):
    """An option of `run_batch` that cannot be used."""

    def __init__(self, option: str, fault: str) -> None:
        """Say which, and what is wrong with it."""
        super().__init__(f"{option} {fault}")
        self.option = option
        self.fault = fault


class BatchBusy(BatchError):  # noqa: N818 - a state that callers expect
    """Another process works on the same results."""


class BatchChanged(BatchError):  # noqa: N818 - the same
    """What the finished tasks rest on, settings or a task's text, is not what is given now."""


class Unfinished(Exception):  # noqa: N818 - an engine's word, not a fault of the task
    """The batch's budget has refused a job a call; the message says how. It can be gone on with."""

    def __init__(self, why: str, result: Mapping[str, Any]) -> None:
        """Say why, and what there is of it so far: `Result.as_json()`, empty before its first attempt."""
        super().__init__(why)
        self.result = result


class NothingPossible(Exception):  # noqa: N818 - an engine's word, not a fault of the task
    """An engine can run no task at all any more; the message says why. What is left is not run."""
