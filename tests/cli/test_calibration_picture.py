"""The picture of a calibration is a real one and shows the data."""

import json
import sys
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def examples(tmp_path):
    """Three right answers and two wrong ones, judged by comparison."""
    answers = [("Paris", True), ("paris.", True), ("The city is not London", True), ("Rome", False), ("Paris", False)]
    path = tmp_path / "examples.jsonl"
    lines = [{"task": "Capital of France?", "answer": a, "truth": t, "expect": "Paris"} for a, t in answers]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_an_svg_holds_the_counts_and_the_thresholds_as_text(reflexion, examples, tmp_path):
    done = reflexion("calibrate", examples, "--picture", tmp_path / "c.svg", "--threshold", "0.9")
    assert done.exit_code == 0, done.stderr
    root = ET.fromstring((tmp_path / "c.svg").read_text())
    texts = {"".join(element.itertext()) for element in root.iter(f"{SVG}text")}
    assert {"right answers (3)", "wrong answers (2)", "threshold 0.9", "balanced at 0.5", "threshold"} <= texts
    assert any(text.startswith("score given by") for text in texts)


def test_the_same_verdicts_are_the_same_svg(reflexion, examples, tmp_path):
    for name in ("one.svg", "two.svg"):
        reflexion("calibrate", examples, "--picture", tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_png_is_readable_without_colours(reflexion, examples, tmp_path):
    reflexion("calibrate", examples, "--picture", tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        assert image.width > 600
        pixels = image.convert("RGB").getcolors(1 << 24)
    assert all(max(colour) - min(colour) <= 2 for _, colour in pixels)
    assert len({colour for _, colour in pixels}) > 3


def test_a_missing_matplotlib_is_said_before_anything_is_judged(reflexion, examples, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = reflexion("calibrate", examples, "--picture", tmp_path / "c.png", "--out", tmp_path / "out.jsonl")
    assert done.exit_code == 2
    assert "reflexion-graph[report]" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
