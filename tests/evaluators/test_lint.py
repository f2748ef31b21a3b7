"""Tools read an answer's code without running it; what they find lowers the score."""

import importlib.util

import pytest

from reflexion.evaluators import Linter, Task, TypeChecker

TASK = Task(text="Write f.")


async def judge(evaluator, answer):
    return await evaluator.evaluate(TASK, {"number": 1, "answer": answer, "plan": "", "style": "first"})


@pytest.mark.parametrize("evaluator", [Linter(), TypeChecker()], ids=lambda evaluator: evaluator.name)
async def test_code_without_a_finding_scores_one(evaluator):
    verdict = await judge(evaluator, "```python\ndef add(a: int, b: int) -> int:\n    return a + b\n```")
    assert (verdict.score, verdict.feedback, verdict.checks) == (1.0, "nothing found", ())
    assert verdict.evaluator == evaluator.name


async def test_each_finding_costs_its_share_of_the_lines_and_is_told_with_line_and_rule():
    verdict = await judge(Linter(), "import os\n\ndef f(x):\n    y = x\n    return undefined\n")
    assert verdict.score == pytest.approx(1 - 3 / 4)
    assert "- line 1: F401: `os` imported but unused" in verdict.feedback
    assert "- line 5: F821: " in verdict.feedback
    assert any(check.startswith("ruff does not find F821: ") for check in verdict.checks)


async def test_types_that_do_not_fit_are_found():
    verdict = await judge(TypeChecker(), "def f(x: int) -> str:\n    return x\n")
    assert verdict.score == 0.5
    assert "- line 2: return-value: Incompatible return value type" in verdict.feedback


async def test_strictness_is_a_choice():
    answer = "def f(x):\n    return x\n"
    assert (await judge(TypeChecker(), answer)).score == 1
    assert (await judge(TypeChecker(strict=True), answer)).score < 1
    assert (await judge(Linter(select=["D103"]), answer)).score == 0.5


@pytest.mark.parametrize("evaluator", [Linter(), TypeChecker()], ids=lambda evaluator: evaluator.name)
@pytest.mark.parametrize("answer", ["def f(:", "I cannot do that."])
async def test_what_does_not_parse_scores_zero(evaluator, answer):
    verdict = await judge(evaluator, answer)
    assert verdict.score == 0
    assert "line 1" in verdict.feedback


@pytest.mark.parametrize("evaluator", [Linter(), TypeChecker()], ids=lambda evaluator: evaluator.name)
@pytest.mark.parametrize(
    "silence",
    [
        "# ruff: noqa",
        "# mypy: ignore-errors",
        "# flake8: noqa",
        "# ruff: disable[F821, F401]",
        "# mypy: disable-error-code=name-defined",
    ],
)
async def test_code_cannot_silence_the_tool(evaluator, silence):
    line = "    return undefined  # noqa: F821  # type: ignore[name-defined]  # pyright: ignore\n"
    verdict = await judge(evaluator, f"{silence}\ndef f():\n{line}")
    assert verdict.score < 1
    assert "undefined" in verdict.feedback


async def test_neither_tool_runs_or_imports_anything_of_the_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.mypy]\nplugins = ["evil"]\n[tool.ruff]\nextend = "nowhere.toml"\n')
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    monkeypatch.setenv("MYPYPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = f"# mypy: plugins=evil\nimport evil\n\nopen({str(tmp_path / 'ran')!r}, 'w').close()\nprint(evil)\n"
    verdicts = [await judge(evaluator, answer) for evaluator in (Linter(), TypeChecker())]
    assert [verdict.score for verdict in verdicts] == [1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.py", "pyproject.toml"]


@pytest.mark.parametrize("evaluator", [Linter(), TypeChecker()], ids=lambda evaluator: evaluator.name)
async def test_a_tool_that_is_not_installed_is_no_verdict_and_names_the_extra(evaluator, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == evaluator.name else found(name))
    verdict = await judge(evaluator, "x = 1")
    assert verdict.score is None
    assert "reflexion-graph[lint]" in verdict.feedback


async def test_a_tool_that_refuses_its_options_is_no_verdict():
    verdict = await judge(Linter(select=["NOPE"]), "x = 1")
    assert verdict.score is None
    assert "NOPE" in verdict.feedback


async def test_a_tool_that_is_too_slow_is_no_verdict():
    verdict = await judge(TypeChecker(timeout_s=0.001), "x = 1")
    assert verdict.score is None
    assert "more than" in verdict.feedback


async def test_feedback_stays_short():
    answer = "\n".join(f"print(undefined_{number})" for number in range(200))
    verdict = await judge(Linter(), answer)
    assert verdict.score == 0
    assert "and 180 more" in verdict.feedback
    assert len(verdict.checks) == 20
