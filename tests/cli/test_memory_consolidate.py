"""`reflexion memory consolidate`: what it prints, and what it does only when it is told to."""

import json

import pytest

TASK = "Sum a list of numbers."
ONE, TWO, BOTH = "Check whether the list is empty.", "Return zero for an empty list.", "Return zero where it is empty."


@pytest.fixture
def lessons(reflexion, model, tmp_path):
    """Two lessons of a task, and a model that would make one of them and retire one that there is not."""
    file = tmp_path / "lessons.jsonl"
    file.write_text("".join(json.dumps({"task": TASK, "text": text}) + "\n" for text in (ONE, TWO)))
    assert reflexion("memory", "import", file).exit_code == 0
    merge = {"op": "MERGE", "lessons": ["L1", "L2"], "text": BOTH, "why": "they say the same"}
    gone = {"op": "RETIRE", "lessons": ["L7"], "text": "", "why": "it helps nobody"}
    model.default("m", {"operations": [merge, gone]})


def states(reflexion):
    listed = json.loads(reflexion("memory", "list", "--json").stdout)["lessons"]
    return {each["text"]: each["state"] for each in listed}


def test_without_apply_it_prints_the_difference_and_does_nothing(reflexion, lessons):
    done = reflexion("memory", "consolidate")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "MERGE: they say the same"
    assert sorted(line.split(" ", 2)[2] for line in lines[1:3] if line.startswith("- ")) == [ONE, TWO]
    assert lines[3].startswith("+ ")
    assert lines[3].endswith(BOTH)
    assert "  refused: there is no lesson L7" in lines
    assert "nothing was changed: --apply asks again and does it" in lines
    assert states(reflexion) == {ONE: "candidate", TWO: "candidate"}


def test_what_was_applied_is_undone_by_forgetting_it(reflexion, lessons):
    done = json.loads(reflexion("memory", "consolidate", "--apply", "--json").stdout)
    assert states(reflexion) == {ONE: "retired", TWO: "retired", BOTH: "candidate"}
    shown = reflexion("memory", "show", done["proposals"][0]["lesson_id"]).stdout
    assert f"MERGE by {done['consolidation_id']}.1" in shown
    assert reflexion("memory", "forget", "--run", done["consolidation_id"]).exit_code == 0
    assert states(reflexion) == {ONE: "candidate", TWO: "candidate"}


def test_a_budget_ends_it_before_anything_is_paid(reflexion, lessons, model):
    done = reflexion("memory", "consolidate", "--budget-tokens", "10")
    assert (done.exit_code, model.count) == (1, 0)
    assert "ended early: " in done.stdout
