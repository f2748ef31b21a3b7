"""Reviews at the command line: at a terminal, and in two commands without one."""

import json
import os
import pty
import subprocess
import sys

import pytest

GOOD, BAD = {"score": 9}, {"score": 4, "weaknesses": "too short"}


@pytest.fixture
def passes(model):
    model.script("m", "forty-two", GOOD)
    return model


def test_without_a_terminal_the_run_waits_and_a_second_command_goes_on(reflexion, passes):
    first = reflexion("run", "Say forty-two.", "--review", "answer", "--thread", "my thread")
    assert (first.exit_code, first.stdout.strip()) == (1, "forty-two")
    assert "reflexion run --thread 'my thread' --decision approve" in first.stderr
    second = reflexion("run", "--thread", "my thread", "--decision", "approve", "--json")
    assert (second.exit_code, json.loads(second.stdout)["answer"]) == (0, "forty-two")
    assert passes.count == 2


def test_what_waits_is_printed_as_json_and_an_edit_given_as_json(reflexion, passes):
    first = reflexion("run", "Say forty-two.", "--review", "answer", "--json")
    waiting = json.loads(first.stdout)
    assert waiting["review"]["answer"] == "forty-two"
    decision = json.dumps({"action": "edit", "answer": "42"})
    second = reflexion("run", "--thread", waiting["thread_id"], "--decision", decision, "--quiet")
    assert (second.exit_code, second.stdout.strip()) == (0, "42")


def test_a_decision_that_is_none_is_one_clear_line(reflexion, passes):
    reflexion("run", "Say forty-two.", "--review", "answer", "--thread", "t")
    for decision in ("perhaps", '{"action": ', '{"action": "approve", "plan": "x"}'):
        done = reflexion("run", "--thread", "t", "--decision", decision)
        assert done.exit_code == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert "decision on attempt 1" in done.stderr
    assert reflexion("run", "--thread", "t", "--decision", "approve").exit_code == 0


def test_what_the_first_command_asked_for_holds_in_those_that_go_on(reflexion, model):
    model.script("m", "forty", BAD, {"improvement": "Add two."}, "Count on.", "forty-two", GOOD)
    first = reflexion("run", "Say forty-two.", "--review", "both", "--max-attempts", "2", "--thread", "t")
    assert (first.exit_code, first.stdout.strip()) == (1, "forty")
    second = reflexion("run", "--thread", "t", "--decision", "approve")
    assert (second.exit_code, second.stdout.strip()) == (1, "forty-two")
    third = reflexion("run", "--thread", "t", "--decision", "reject", "--json")
    assert json.loads(third.stdout)["stop_reason"] == "max_attempts"


@pytest.mark.parametrize(
    ("keys", "answer", "code"),
    [
        ("a\n", "forty-two", 0),
        ("what?\ns\n", "forty-two", 130),
        ("e\n", "forty-two and a half", 0),
        ("", "forty-two", 130),
    ],
)
def test_at_a_terminal_it_asks(passes, tmp_path, keys, answer, code):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'forty-two and a half' > \"$1\"\n")
    editor.chmod(0o755)
    shown, code_seen, printed = at_a_terminal(
        ["run", "Say forty-two.", "--review", "answer", "--quiet"], keys, {"EDITOR": str(editor), "VISUAL": ""}
    )
    assert shown.index("forty-two") < shown.index("accept this answer?")
    assert (printed.strip(), code_seen) == (answer, code)


def at_a_terminal(arguments, keys, environment):
    """What a terminal shows, the exit code, and stdout, which is no terminal."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "reflexion.cli", *arguments],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=os.environ | environment,
    )
    os.close(terminal)
    shown = b""
    asked = False
    try:
        while True:
            try:
                piece = os.read(controller, 4096)
            except OSError:  # how Linux says that the other end is closed
                break
            if not piece:
                break
            shown += piece
            if not asked and b"[s]top: " in shown:
                asked = True
                os.write(controller, keys.encode() or b"\x04")
        printed = process.stdout.read().decode()
        return shown.decode(errors="replace"), process.wait(timeout=100), printed
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
        os.close(controller)
