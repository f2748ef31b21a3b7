"""Two ends of a run that are no errors: it has used up its money, or its time."""

SMALLEST_REPLY = 64
"""Tokens. A call that could not pay for even such a reply is not sent."""


class BudgetExhausted(Exception):  # noqa: N818 - an end, not an error
    """The next call would cost more than may still be spent."""


class Suspended(BudgetExhausted):
    """The same, of a budget that may be raised: the run is left as it is, and goes on when its thread is run again."""


class DeadlineExceeded(Exception):  # noqa: N818 - an end, not an error
    """The time is used up."""
