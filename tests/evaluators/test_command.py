"""A command of the user's judges code in any language, and leaves nothing behind."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from reflexion.evaluators import Command, Evaluation, Task, exit_code, junit, tap

PATIENCE_S = 60
TASK = Task(text="Write a script.")
PYTHON = [sys.executable, "-I", "-S"]


async def judge(command, answer):
    return await command.evaluate(TASK, {"number": 1, "answer": answer, "plan": "", "style": "first"})


async def comes_true(condition, *values):
    """Whether something outside of this process happens; a killed process takes a moment to be gone."""

    def watch():
        until = time.monotonic() + PATIENCE_S
        while not condition(*values):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    return await asyncio.to_thread(watch)


def gone(pid):
    try:
        os.kill(int(pid), 0)
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


def shell(**options):
    return Command(["sh", "answer.sh"], file="answer.sh", **options)


@pytest.mark.parametrize(
    ("answer", "score", "told"),
    [
        ("exit 0", 1.0, "succeeded"),
        ("Here:\n```sh\necho out; echo err >&2; exit 3\n```\nUse it as `sh answer.sh`:\n```\nx\n```", 0.0, "out\nerr"),
        ("~~~\nexit 0\n~~~", 1.0, "succeeded"),
        ("```sh\nexit 0", 1.0, "succeeded"),
        ("kill -9 $$", 0.0, "signal 9"),
    ],
)
async def test_the_exit_code_decides(answer, score, told):
    verdict = await judge(shell(), answer)
    assert verdict.score == score
    assert told in verdict.feedback
    assert verdict.evaluator == "sh"


async def test_the_environment_is_empty_but_for_the_path_and_what_is_given(monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    code = "import os; assert set(os.environ) - {'LC_CTYPE'} == {'PATH', 'MINE'}, os.environ"
    verdict = await judge(Command([*PYTHON, "answer.txt"], file="answer.txt", env={"MINE": "1"}), code)
    assert verdict.score == 1, verdict.feedback


async def test_it_runs_in_a_fresh_folder_with_its_files():
    command = shell(files={"lib/data.txt": "hello\n"})
    answer = 'test "$(cat lib/data.txt)" = hello && test ! -e mark && touch mark && pwd >&2 && exit 1'
    first, second = await judge(command, answer), await judge(command, answer)
    folders = [verdict.feedback.splitlines()[-1] for verdict in (first, second)]
    assert folders[0] != folders[1]
    assert [os.path.exists(folder) for folder in folders] == [False, False]  # noqa: ASYNC240, PTH110


async def test_what_takes_too_long_is_killed_with_all_that_it_started():
    answer = "sh -c 'sleep 600 & echo $! ; wait' & echo started; wait"
    verdict = await judge(shell(timeout_s=1), answer)
    assert verdict.score == 0
    assert "more than 1 s" in verdict.feedback
    for line in verdict.feedback.splitlines():
        if line.isdigit():
            assert await comes_true(gone, line)


async def test_what_is_left_running_is_killed_and_not_waited_for():
    verdict = await judge(shell(timeout_s=300), "sleep 600 & echo $!; exit 1")
    assert verdict.score == 0
    assert await comes_true(gone, verdict.feedback.splitlines()[-1])


async def test_cancelling_kills_it(tmp_path):
    told = tmp_path / "pid"
    running = asyncio.create_task(
        judge(shell(timeout_s=300), f"echo $$ > {told}.part; mv {told}.part {told}; sleep 600")
    )
    assert await comes_true(told.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await comes_true(gone, told.read_text().strip())


async def test_output_of_any_size_and_kind_is_capped_text():
    code = "import sys\nsys.stdout.buffer.write(b'\\xff\\x00' * 8_000_000); sys.exit(1)"
    verdict = await judge(Command([*PYTHON, "answer.txt"], file="answer.txt"), code)
    assert verdict.score == 0
    assert len(verdict.feedback) < 2_000
    assert verdict.feedback.encode()


@pytest.mark.parametrize(
    ("options", "answer", "score", "told"),
    [
        ({"read": tap}, "echo 1..2; echo ok 1 - a; echo not ok 2 - b; echo '# why'; exit 1", 0.5, "- b: why"),
        ({"read": tap}, "echo 1..1; echo ok 1; exit 1", 0.5, "exit code 1"),
        ({"read": tap}, "echo nothing", None, "no tests ran (exit code 0)"),
        ({"read": tap}, "syntax error (", None, "no tests ran (exit code 2)"),
        ({"read": tap, "build": ["sh", "-n", "answer.sh"]}, "syntax error (", 0.0, "does not build"),
        ({"read": tap, "build": ["sh", "-n", "answer.sh"]}, "echo 1..1; echo ok", 1.0, "1 of 1"),
        ({"read": junit("r.xml")}, "echo '<t><testcase name=\"a\"/></t>' > r.xml", 1.0, "1 of 1"),
        (
            {"read": junit("r.xml")},
            "echo '<t><testcase name=\"a\"><failure>why</failure></testcase></t>' > r.xml",
            0,
            "a: why",
        ),
        ({"read": junit("r.xml")}, "echo '<t/>' > r.xml", None, "no tests ran"),
        ({"read": junit("r.xml")}, "echo hi", None, "no tests ran"),
        ({"read": junit("r.xml")}, "echo '<t' > r.xml", None, "cannot be read"),
    ],
)
async def test_reports_are_the_share_of_passed_tests(options, answer, score, told):
    verdict = await judge(shell(**options), answer)
    assert verdict.score == score
    assert told in verdict.feedback
    assert len(verdict.checks) == (score is not None and score < 1 and "build" not in verdict.feedback)


async def test_a_reader_of_the_users_own():
    def read(finished, folder):
        size = len((folder / "out.txt").read_text())
        return Evaluation(score=size / 10, feedback=finished.stdout.strip())

    verdict = await judge(shell(read=read, name="size"), "printf 12345 > out.txt; echo done")
    assert (verdict.score, verdict.feedback, verdict.evaluator) == (0.5, "done", "size")


async def test_a_command_that_is_not_there_is_no_verdict():
    verdict = await judge(Command(["no-such-program-anywhere"], file="a.txt"), "x")
    assert verdict.score is None
    assert "no-such-program-anywhere" in verdict.feedback


async def test_python_code_is_taken_out_as_for_unit_tests():
    command = Command([*PYTHON, "test.py"], file="solution.py", files={
        "test.py": "import sys; sys.path.insert(0, '.'); from solution import add; assert add(1, 2) == 3"
    })  # fmt: skip
    assert (
        await judge(command, "Sure!\n```python\ndef add(a, b):\n    return a + b\nassert add(1, 1) == 3\n```")
    ).score == 1


async def test_nothing_blocks_the_event_loop():
    with blockbuster_ctx():
        assert (await judge(shell(), "exit 0")).score == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": []},
        {"argv": "sh answer.sh"},
        {"file": "/etc/passwd"},
        {"file": "../x"},
        {"file": ""},
        {"files": {"../x": ""}},
        {"files": {"a.sh": ""}},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
    ],
)
def test_what_cannot_run_is_refused_at_once(wrong):
    with pytest.raises(ValueError, match=r"argv|file|timeout_s"):
        Command(**({"argv": ["sh"], "file": "a.sh", "read": exit_code} | wrong))
