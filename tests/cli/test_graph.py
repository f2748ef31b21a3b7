"""`reflexion graph` draws the graph as it is."""

from pathlib import Path

from PIL import Image


def test_mermaid_names_every_node_and_the_only_choice(reflexion):
    done = reflexion("graph")
    assert done.exit_code == 0
    for edge in ("recall --> actor", "actor --> evaluator", "reflector --> planner"):
        assert edge in done.stdout
    assert done.stdout.count("-.->") == 8
    assert "evaluator -.-> reflector" in done.stdout
    assert "evaluator -.-> remember" in done.stdout


def test_the_picture_is_drawn_without_a_network(reflexion, tmp_path: Path):
    done = reflexion("graph", "--png", tmp_path / "graph.png")
    assert done.exit_code == 0
    with Image.open(tmp_path / "graph.png") as image:
        assert image.width > 400
        assert len(image.convert("L").getcolors() or ()) > 3


def test_a_picture_that_cannot_be_written_is_one_clear_line(reflexion, tmp_path: Path):
    done = reflexion("graph", "--png", tmp_path / "missing" / "graph.png")
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
