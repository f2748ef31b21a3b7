"""The process that holds the tests: runs them against the candidate in the other process and sends the verdict.

The verdict goes to the parent on a pipe of its own, each line with a token that only this process was given.
"""

import ast
import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from reflexion.sandbox import pytest_shim, wire
from reflexion.sandbox.collect import Collection, collect
from reflexion.sandbox.namespace import Guard, Namespace, reader, stand_in_for_imports
from reflexion.sandbox.outcome import Judge, described
from reflexion.sandbox.peer import Peer


def main(job: dict[str, Any]) -> None:
    """Judge a candidate.

    Args:
        job: `tests` (source text), `entry` (name or empty), `reader`, `writer` and `verdict` (file descriptors),
            `token`, and `packages` that can be imported.
    """

    def report(message: dict[str, Any]) -> None:
        view = memoryview(f"{job['token']} {json.dumps(message)}\n".encode("ascii"))
        while view:
            view = view[os.write(job["verdict"], view) :]

    report({"now": None})
    sys.argv = ["tests"]
    sys.modules["pytest"] = pytest_shim
    collection = collect(job["tests"], job["entry"] or "candidate")
    judge = Judge(collection.tests, report)
    state, message = "unavailable", "the candidate's process did not start"
    try:
        if wire.receive(job["reader"]) == "ready":
            state, message = "candidate_failed", "the process ended while the code was loading"
            loaded = wire.receive(job["reader"])
            if "failed" in loaded:
                message = str(loaded["failed"])
            else:
                state, message = "crashed", "the candidate's process ended before the tests did"
                _Run(job, collection, judge, loaded).all()
                state, message = "ran", ""
    except wire.PeerGone:
        pass  # the state says how far it got
    report({"state": state, "message": message, "results": judge.results()})
    os._exit(0)  # threads and exit functions of the tests have no say any more


class _Run:
    def __init__(self, job: dict[str, Any], collection: Collection, judge: Judge, loaded: dict[str, Any]) -> None:
        self._collection = collection
        self._judge = judge
        self._entry: str = job["entry"]
        self._peer = peer = Peer(job["reader"], job["writer"], Guard(), trusting=False)
        read = reader(peer, loaded["names"], self._entry, collection.names)
        self._namespace = Namespace(read, loaded["modules"])
        self._namespace["_judge"] = judge
        packages = [package["name"] for package in job["packages"]]
        stand_in_for_imports(collection.statements, loaded["names"], peer, packages)

    def all(self) -> None:
        """Run the file's statements in order, then its functions, classes and `check`."""
        trouble = ""
        for statement in self._collection.statements:
            trouble = self._statement(statement) or trouble
        self._judge.why_not_run = trouble
        if "check" in self._namespace and not self._collection.calls_check:
            trouble = self._check() or trouble
        runners = {"function": self._function, "method": self._method}
        for number, test in enumerate(self._collection.tests):
            if test.kind in runners:
                self._judge.run(number, runners[test.kind](test.target))
        if trouble:
            self._judge.set_up_failed(trouble)
        if self._peer.gone:
            raise wire.PeerGone  # a bare `except:` in the tests may have swallowed it

    def _statement(self, statement: ast.stmt) -> str:
        """Run one statement; give what went wrong, empty for nothing."""
        try:
            exec(compile(ast.Module([statement], []), "tests.py", "exec"), self._namespace)  # noqa: S102
        except wire.PeerGone:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit in a test file must not end the judge
            why = f"line {statement.lineno} of the tests raised {described(error)}"
            self._namespace.spoil(statement, why)
            return why
        return ""

    def _check(self) -> str:
        why = ""
        try:
            if self._collection.check_caller:
                self._namespace[self._collection.check_caller]()
            else:
                self._namespace["check"](self._candidate())
        except wire.PeerGone:
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            why = f"check raised {described(error)}"
        for number, test in enumerate(self._collection.tests):
            if test.kind == "check" and not why:
                self._judge.passed(number)
        self._judge.why_not_run = why
        return why

    def _candidate(self) -> Any:
        try:
            return self._namespace[self._entry]
        except KeyError:
            what = repr(self._entry) if self._entry else "a function"
            raise NameError(f"the code does not define {what}") from None

    def _function(self, name: str) -> Callable[[], None]:
        return lambda: _call_test(self._defined(name))

    def _defined(self, name: str) -> Any:
        """Find what the tests define; the candidate's object of that name is no test."""
        if name in self._namespace:
            return dict.__getitem__(self._namespace, name)
        raise pytest_shim.Failed(self._judge.why_not_run or f"{name} was never defined")

    def _method(self, name: str) -> Callable[[], None]:
        class_name, _, method = name.partition(".")

        def run() -> None:
            cls = self._defined(class_name)
            if "unittest" in sys.modules and issubclass(cls, sys.modules["unittest"].TestCase):
                _run_unittest(cls(method))
                return
            made = cls()
            getattr(made, "setup_method", lambda: None)()
            _call_test(getattr(made, method))

        return run


def _call_test(function: Callable[..., Any]) -> None:
    count = 0
    for label, call in pytest_shim.calls(function):
        count += 1
        try:
            result = call()
            if inspect.iscoroutine(result):
                import asyncio  # noqa: PLC0415 - see `Peer`

                asyncio.run(result)
        except Exception as error:
            if label:
                error.add_note(f"with {label}")
            raise
    if count == 0:
        raise pytest_shim.Failed("has no cases")


def _run_unittest(case: Any) -> None:
    import unittest  # noqa: PLC0415 - the tests have loaded it already; others are spared the half of the start-up time

    class OneResult(unittest.TestResult):
        succeeded = False
        first: BaseException | None = None

        def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
            self.succeeded = True

        def addError(self, test: Any, err: Any) -> None:  # noqa: N802
            self.first = self.first or err[1]

        def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
            self.first = self.first or err[1]

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
            self.first = self.first or (err and err[1])

        def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
            self.first = self.first or pytest_shim.Failed(f"skipped: {reason}")

    result = OneResult()
    unittest.TestSuite([case]).run(result)
    if result.first is not None:
        raise result.first
    if not result.succeeded:
        raise pytest_shim.Failed("did not succeed")
