"""`reflexion memory consolidate`: what it prints, and what it does only when it is told to."""

import json
from pathlib import Path

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
    assert lines[-1].startswith("nothing was changed: ")
    assert states(reflexion) == {ONE: "candidate", TWO: "candidate"}


def test_what_was_shown_is_applied_without_asking_again_and_undone_by_forgetting_it(reflexion, lessons, model):
    shown = reflexion("memory", "consolidate", "--out", "plan.json").stdout.splitlines()
    asked = model.count
    told = reflexion("memory", "consolidate", "--apply", "plan.json")
    assert (told.exit_code, model.count) == (0, asked)
    assert told.stdout.splitlines()[1:4] == shown[1:4]
    done = json.loads(Path("plan.json").read_text())
    assert told.stdout.splitlines()[-1].endswith(done["consolidation_id"])
    assert states(reflexion) == {ONE: "retired", TWO: "retired", BOTH: "candidate"}
    shown = reflexion("memory", "show", done["proposals"][0]["lesson_id"]).stdout
    assert f"MERGE by {done['consolidation_id']}.1" in shown
    assert reflexion("memory", "forget", "--run", done["consolidation_id"]).exit_code == 0
    assert states(reflexion) == {ONE: "candidate", TWO: "candidate"}


def test_what_does_not_fit_any_more_is_refused(reflexion, lessons):
    Path("plan.json").write_text(reflexion("memory", "consolidate", "--json").stdout)
    assert reflexion("memory", "forget", "--all").exit_code == 0
    done = reflexion("memory", "consolidate", "--apply", "plan.json")
    assert done.exit_code == 1
    assert "is not there any more" in done.stdout
    assert states(reflexion) == {}


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (None, [], "plan.json: cannot be read"),
        ("no JSON", [], "plan.json: cannot be read"),
        ("[]", [], "no file that --out has written"),
        ('{"proposals": [1]}', [], "no consolidation: "),
        (
            '{"proposals": [], "namespace": "", "consolidation_id": "c0a80101-0000-4000-8000-000000000000"}',
            [],
            "the namespace is empty",
        ),
        ('{"proposals": []}', ["--namespace", "other"], "--namespace and --apply"),
        ('{"proposals": []}', ["--budget-usd", "1"], "--budget-usd and --apply"),
    ],
)
def test_a_file_that_cannot_be_applied_is_refused_in_one_line(reflexion, text, options, said):
    if text is not None:
        Path("plan.json").write_text(text)
    done = reflexion("memory", "consolidate", "--apply", "plan.json", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_file_that_cannot_be_written_is_noticed_before_anything_is_paid(reflexion, lessons, model):
    done = reflexion("memory", "consolidate", "--out", "no/such/folder.json")
    assert (done.exit_code, model.count) == (2, 0)


def test_a_budget_ends_it_before_anything_is_paid(reflexion, lessons, model):
    done = reflexion("memory", "consolidate", "--budget-tokens", "10")
    assert (done.exit_code, model.count) == (1, 0)
    assert "ended early: " in done.stdout
