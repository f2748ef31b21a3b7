"""Keeps the result of each collected test while they run, in the process that holds the tests."""

from collections.abc import Callable, Sequence
from typing import Any

from reflexion.sandbox.collect import Collected
from reflexion.sandbox.objects import WHERE
from reflexion.sandbox.peer import HandoverError
from reflexion.sandbox.wire import PeerGone

_SHOWN = 300
"""Characters of a value or message that are kept."""

_MAX_REPORTS = 20_000
"""Messages about the test under way; a loop with several asserts would send them without end."""

_WANTED = {
    "NotEq": "anything but {}",
    "Lt": "less than {}",
    "LtE": "at most {}",
    "Gt": "more than {}",
    "GtE": "at least {}",
    "IsNot": "anything but {}",
    "In": "one of {}",
    "NotIn": "none of {}",
    "true": "a true value",
    "false": "a false value",
}


class Failure(AssertionError):  # noqa: N818 - a test outcome, not an error
    """An assert that did not hold, with both of its sides."""

    def __init__(self, source: str, got: str, wanted: str, message: str) -> None:
        super().__init__(message or f"{source}: got {got}, wanted {wanted}")
        self.source = source
        self.got = got
        self.wanted = wanted
        self.message = message


def shortened(text: str) -> str:
    """Cut the middle out of a long text."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 100]} … {text[-90:]}"


def shown(value: Any) -> str:
    """Give a value's repr, short, whatever the value is."""
    if isinstance(value, int) and abs(value).bit_length() > 4000:
        return f"an int of {value.bit_length()} bits"
    try:
        return shortened(repr(value))
    except PeerGone:
        raise
    except Exception:  # noqa: BLE001 - a value that cannot be shown is still a wrong value
        return f"<{type(value).__name__}>"


def described(error: BaseException) -> str:
    """Give an exception as one text: its class, its message and the candidate's line it came from."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - see above
        text = ""
    if isinstance(error, HandoverError):
        return shortened(text)
    where = error.__dict__.get(WHERE) if hasattr(error, "__dict__") else ""
    return shortened(f"{type(error).__name__}: {text}".rstrip(": ")) + (f" ({where})" if where else "")


class Judge:
    """What the rewritten tests report to, as `_judge`.

    Args:
        tests: all that were collected.
        report: sends one message to the parent.
    """

    def __init__(self, tests: Sequence[Collected], report: Callable[[dict[str, Any]], None]) -> None:
        self._tests = tests
        self._report = report
        self._results: dict[int, dict[str, Any]] = {}
        self._begun = -1
        self._reports_left = _MAX_REPORTS
        self.why_not_run = ""
        """What stopped the tests before some of them were reached."""

    def begin(self, number: int) -> None:
        """Say which test is under way, for the case that it never ends."""
        if number != self._begun and self._reports_left:
            self._begun = number
            self._reports_left -= 1
            self._report({"now": number})

    def passed(self, number: int) -> None:
        """Note a pass, unless the same test failed earlier, as in a loop."""
        self._results.setdefault(number, {"passed": True})

    def failed(self, number: int, error: BaseException) -> None:
        """Note a failure; the first one of a test is kept.

        Raises:
            PeerGone: it was one, and no further test can run.
        """
        gone = isinstance(error, PeerGone)
        if isinstance(error, Failure):
            inside = "" if self._tests[number].kind == "statement" else error.source
            message = ": ".join(part for part in (inside, error.message) if part)
            result = {"got": error.got, "wanted": error.wanted, "message": message}
        else:
            result = {"message": "the candidate's process ended during this test" if gone else described(error)}
        notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
        result["message"] = "; ".join(shortened(part) for part in (result["message"], *notes) if part)
        if self._results.get(number, {"passed": True})["passed"]:
            self._results[number] = {"passed": False, **result}
        if gone:
            self.why_not_run = self.why_not_run or "the candidate's process had ended"
            raise error

    def failure(self, source: str, operator: str, message: Any, *sides: Any) -> Failure:
        """Make the exception of an assert that did not hold."""
        wanted = _WANTED.get(operator, "{}").format(*(shown(side) for side in sides[1:]))
        return Failure(source, shown(sides[0]), wanted, "" if message is None else shortened(str(message)))

    def run(self, number: int, test: Callable[[], Any]) -> None:
        """Run one test and note how it went.

        Raises:
            PeerGone: the candidate's process ended.
        """
        self.begin(number)
        try:
            test()
        except BaseException as error:  # noqa: BLE001 - SystemExit of the candidate is a failure like any other
            self.failed(number, error)
        else:
            self.passed(number)

    def set_up_failed(self, why: str) -> None:
        """See to it that a failed statement between the tests does not go unnoticed where every test passed."""
        if len(self._results) == len(self._tests) and all(result["passed"] for result in self._results.values()):
            self._results[len(self._tests) - 1] = {"passed": False, "message": why}

    def results(self) -> list[dict[str, Any]]:
        """Give one result for each collected test, in their order; those not reached are not passed."""
        missing = {"passed": False, "message": f"did not run: {self.why_not_run or 'its line was never reached'}"}
        return [self._results.get(number, missing) for number in range(len(self._tests))]
