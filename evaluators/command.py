"""Judges code in any language by a command of the user's."""

import asyncio
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from reflexion.evaluators.code import extract_code
from reflexion.evaluators.process import Finished, in_thread, run
from reflexion.evaluators.records import Attempt, Evaluation, Task
from reflexion.evaluators.reports import Outcome, ReportError, read_junit, read_tap
from reflexion.sandbox.disk import folder_of_a_run

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_LARGEST_REPORT = 16 << 20
_SHOWN_FAILURES = 10
_SHOWN = 1_500

Read = Callable[[Finished, Path], Evaluation]
"""Makes a verdict of what a command came to; the folder that it ran in is still there."""


def exit_code(finished: Finished, _: Path) -> Evaluation:
    """Score 1 for exit code 0, else 0."""
    if finished.exit_code == 0:
        return Evaluation(score=1.0, feedback="the command succeeded")
    return Evaluation(score=0.0, feedback=f"{_how(finished)}:\n{_end(finished.output)}")


def tap(finished: Finished, _: Path) -> Evaluation:
    """Score the share of passed tests in the TAP that the command prints."""
    return _share(read_tap(finished.stdout), finished)


def junit(path: str) -> Read:
    """Make a reader that scores the share of passed tests in the JUnit XML that the command writes.

    Args:
        path: of the report, in the folder that the command runs in.
    """

    def read(finished: Finished, folder: Path) -> Evaluation:
        report = folder / _inside(path)
        if not report.is_file():
            return _share([], finished)
        if report.stat().st_size > _LARGEST_REPORT:
            return Evaluation(score=None, feedback=f"{path} is larger than {_LARGEST_REPORT >> 20} MiB")
        try:
            return _share(read_junit(report.read_bytes()), finished)
        except ReportError as error:
            return Evaluation(score=None, feedback=str(error))

    return read


class Command:
    """Puts the answer's code into a file in a fresh folder, runs a command there, and reads its verdict.

    The command gets an empty environment but for `PATH`, and is killed with everything it started when it ends or its
    time is over. It is **not** confined: what it runs can read the user's files and use the network. The sandbox holds
    one bare Python interpreter and cannot start programs.

    Args:
        argv: the program and its arguments, without a shell.
        file: name of the file that the answer's code is written to: for `….py` as `extract_code` finds it, else the
            longest fenced block of the answer, or all of it where there is none.
        read: makes the verdict: `exit_code`, `tap`, `junit(path)`, or a function of your own.
        build: a command run before; where it fails the answer is at fault, and scores 0.
        files: further files by their names, such as the tests.
        env: further variables of the environment.
        timeout_s: seconds for each of the two commands; a longer one scores 0.
        name: what results call it; by default the program's.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        file: str,
        read: Read = exit_code,
        build: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        name: str | None = None,
    ) -> None:
        """Check what can be checked before anything runs.

        Raises:
            ValueError: there is no command, a file would lie outside of the folder, or the time is no time.
        """
        if isinstance(argv, str) or not argv:
            raise ValueError(f"argv {argv!r}: give the program and its arguments as a list, such as ['node', '--test']")
        if not (timeout_s > 0 and math.isfinite(timeout_s)):
            raise ValueError(f"timeout_s {timeout_s!r}: give seconds, more than 0")
        self.name = name or PurePosixPath(argv[0]).name
        self._commands = [list(command) for command in (build, argv) if command]
        self._read = read
        self._file = file
        self._files = {_inside(path): text for path, text in (files or {}).items()}
        self._env = dict(env or {})
        self._timeout_s = timeout_s
        if _inside(file) in self._files:
            raise ValueError(f"files: {file} is where the answer's code will be")

    score_when_late: float | None = 0.0
    """A command that takes too long is the fault of the code that it runs."""

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge an attempt; no verdict where the command cannot be run, or says nothing about the code."""
        code = await asyncio.to_thread(self.code_of, attempt["answer"])
        try:
            verdict = await in_thread(lambda stop: self._run(code, stop))
        except OSError as error:
            verdict = Evaluation(score=None, feedback=f"the command could not be run: {error}")
        return Evaluation(
            score=verdict.score, feedback=verdict.feedback, checks=verdict.checks, criteria=verdict.criteria,
            evaluator=self.name,
        )  # fmt: skip

    def code_of(self, answer: str) -> str:
        """The code that an answer holds."""
        if self._file.endswith(".py"):
            return extract_code(answer)
        blocks = [block[1] for block in _FENCE.findall(answer.replace("\r\n", "\n"))]
        return max(blocks, key=len) if blocks else answer

    def _run(self, code: str, stop: threading.Event) -> Evaluation:
        with folder_of_a_run() as made:
            folder = Path(made)
            for path, text in {**self._files, _inside(self._file): code}.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text, encoding="utf-8", errors="replace")
            *build, command = self._commands
            for argv in build:
                built = self._finished(argv, folder, stop)
                if built.timed_out or built.exit_code != 0:
                    return Evaluation(score=0.0, feedback=f"It does not build: {_how(built)}:\n{_end(built.output)}")
            finished = self._finished(command, folder, stop)
            if finished.timed_out:
                shown = _end(finished.output)
                told = f"It took more than {self._timeout_s:g} s.\n{shown}".strip()
                return Evaluation(score=self.score_when_late, feedback=told)
            return self._read(finished, folder)

    def _finished(self, argv: Sequence[str], folder: Path, stop: threading.Event) -> Finished:
        return run(argv, folder, env=self._env, timeout_s=self._timeout_s, stop=stop)


def _inside(path: str) -> PurePosixPath:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.name:
        raise ValueError(f"file {path!r}: a name inside of the folder is needed")
    return parts


def _share(results: list[Outcome], finished: Finished) -> Evaluation:
    if not results:
        return Evaluation(score=None, feedback=f"no tests ran ({_how(finished)}):\n{_end(finished.output)}")
    if finished.exit_code != 0 and all(result.passed for result in results):
        results = [*results, Outcome("exit code", passed=False, message=f"{_how(finished)}: {_end(finished.stderr)}")]
    failed = [result for result in results if not result.passed]
    lines = [f"{len(results) - len(failed)} of {len(results)} tests passed."]
    lines += [f"- {_capped(r.name, 300)}: {_capped(r.message, _SHOWN)}" for r in failed[:_SHOWN_FAILURES]]
    if len(failed) > _SHOWN_FAILURES:
        lines.append(f"- and {len(failed) - _SHOWN_FAILURES} more")
    return Evaluation(
        score=(len(results) - len(failed)) / len(results),
        feedback="\n".join(lines),
        checks=[f"the test {_capped(r.name, 300)!r} passes" for r in failed[:_SHOWN_FAILURES]],
    )


def _how(finished: Finished) -> str:
    if finished.timed_out:
        return "it took too long"
    return f"exit code {finished.exit_code}" if finished.exit_code >= 0 else f"killed by signal {-finished.exit_code}"


def _end(text: str) -> str:
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"


def _capped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
