"""`reflexion graph` draws the graph as it is."""

from pathlib import Path

from PIL import Image

README = Path(__file__).parents[2] / "README.md"


def test_mermaid_names_every_node_and_the_only_choice(reflexion):
    done = reflexion("graph")
    assert done.exit_code == 0
    first, *edges = done.stdout.splitlines()
    assert first == "graph LR"
    assert edges[0] == "    START([start]) --> recall"
    assert "    remember --> END([end])" in edges
    assert [edge.strip() for edge in edges if "-." in edge] == [
        "evaluator -. again .-> reflector",
        "planner -. attempt .-> actor",
        "planner -.-> review",
        "review -. again .-> reflector",
        "review -. attempt .-> actor",
        "review -. done .-> remember",
        "evaluator -. done .-> remember",
        "evaluator -.-> review",
    ]


def test_the_readme_shows_the_graph_as_it_is(reflexion):
    """`.ci/graph` writes it there."""
    block = README.read_text(encoding="utf-8").split("```mermaid\n")[1].split("```")[0]
    assert block == reflexion("graph").stdout


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
