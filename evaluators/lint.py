"""Linters and type checkers as evaluators: they read an answer's code and never run it."""

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reflexion.evaluators.command import Command
from reflexion.evaluators.process import Finished
from reflexion.evaluators.records import Attempt, Evaluation, Task

_FILE = "answer.py"
_SHOWN_FINDINGS = 20
_SILENCERS = re.compile(r"#\s*(?:type:\s*ignore|mypy:|ruff:|noqa)[^\n]*")
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a tool complains about."""

    line: int
    rule: str
    message: str
    fatal: bool = False
    """The code cannot be read as Python at all."""


class _Tool(Command):
    """A Python tool on the answer's code: score `max(0, 1 - findings / lines of code)`, 0 where it does not parse.

    Lines without text do not count. Comments by which code silences the tool are taken out first.
    """

    tool: str
    score_when_late = None  # a tool that only reads says nothing by being slow

    def __init__(self, options: Sequence[str], timeout_s: float) -> None:
        argv = [sys.executable, "-I", "-m", self.tool, *options, _FILE]
        super().__init__(argv, file=_FILE, read=self._read_findings, timeout_s=timeout_s, name=self.tool)

    async def evaluate(self, task: Task, attempt: Attempt) -> Evaluation:
        """Judge an attempt; no verdict where the tool is not installed or fails."""
        if importlib.util.find_spec(self.tool) is None:
            reason = f"{self.tool} is not installed; it comes with the extra `lint`: reflexion-graph[lint]"
            return Evaluation(score=None, feedback=reason, evaluator=self.name)
        return await super().evaluate(task, attempt)

    def code_of(self, answer: str) -> str:
        """The code that an answer holds, without comments that would silence the tool."""
        return _SILENCERS.sub("#", super().code_of(answer))

    def findings(self, output: str) -> list[Finding]:
        """What the tool's output says.

        Raises:
            ValueError, KeyError, TypeError: it has another form.
        """
        raise NotImplementedError

    def _read_findings(self, finished: Finished, folder: Path) -> Evaluation:
        try:
            found = self.findings(finished.stdout)
        except (ValueError, KeyError, TypeError):
            found = []
        if not found and finished.exit_code != 0:
            return Evaluation(score=None, feedback=f"{self.tool} failed: {finished.output[-1_000:]}")
        if not found:
            return Evaluation(score=1.0, feedback="nothing found")
        lines = sum(1 for line in (folder / _FILE).read_text(encoding="utf-8").splitlines() if line.strip())
        fatal = any(finding.fatal for finding in found)
        told = [f"- line {f.line}: {f.rule}: {f.message}" for f in found[:_SHOWN_FINDINGS]]
        if len(found) > _SHOWN_FINDINGS:
            told.append(f"- and {len(found) - _SHOWN_FINDINGS} more")
        statements = [f"{self.tool} does not find {f.rule}: {f.message}" for f in found[:_SHOWN_FINDINGS]]
        return Evaluation(
            score=0.0 if fatal else max(0.0, 1 - len(found) / max(1, lines)),
            feedback="\n".join([f"{self.tool} found {len(found)} in {lines} lines.", *told]),
            checks=list(dict.fromkeys(statements)),
        )


class Linter(_Tool):
    """Ruff on the answer's code, by fixed rules and nobody's configuration.

    Score `max(0, 1 - findings / lines of code)`, 0 where the code does not parse.

    Args:
        select: rules, as `ruff check --select` takes them; by default errors, pyflakes and flake8-bugbear.
        timeout_s: seconds after which it is ended without a verdict.
    """

    tool = "ruff"

    def __init__(self, select: Sequence[str] = ("E4", "E7", "E9", "F", "B"), timeout_s: float = 30.0) -> None:
        version = f"py{_VERSION.replace('.', '')}"
        options = ["check", "--isolated", "--no-cache", "--ignore-noqa", "--output-format=json", "--no-fix"]
        super().__init__([*options, f"--target-version={version}", f"--select={','.join(select)}"], timeout_s)

    def findings(self, output: str) -> list[Finding]:
        """What ruff's JSON says."""
        return [
            Finding(
                entry["location"]["row"], entry["code"] or "syntax", entry["message"], entry["code"] == "invalid-syntax"
            )
            for entry in json.loads(output)
        ]


class TypeChecker(_Tool):
    """Mypy on the answer's code, without anybody's configuration, plugins or installed packages.

    What cannot be imported is taken to be of any type. Score as `Linter`'s.

    Args:
        strict: whether every function needs annotations, and the other rules of `mypy --strict`.
        timeout_s: seconds after which it is ended without a verdict.
    """

    tool = "mypy"

    def __init__(self, *, strict: bool = False, timeout_s: float = 60.0) -> None:
        options = ["--config-file=", "--cache-dir=/dev/null", "--no-incremental", "--no-site-packages"]
        options += ["--ignore-missing-imports", f"--python-version={_VERSION}", "--output=json"]
        super().__init__([*options, "--strict" if strict else "--check-untyped-defs"], timeout_s)

    def findings(self, output: str) -> list[Finding]:
        """What mypy's lines of JSON say."""
        entries = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return [
            Finding(entry["line"], entry["code"] or "error", entry["message"], entry["code"] == "syntax")
            for entry in entries
            if entry["severity"] == "error"
        ]
