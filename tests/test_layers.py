"""An import never goes up a floor: who may import whom, read from the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BELOW_NODES = {"prompts", "evaluators", "memory", "models"}
MAY_IMPORT: dict[str, set[str]] = {
    "prompts": set(),
    "testing": set(),
    "models": set(),
    "sandbox": set(),
    "memory": {"models"},
    "evaluators": {"prompts", "models", "sandbox"},
    "nodes": BELOW_NODES,
    # Batch is on the same floor: `agent.run_batch` is the way to it.
    "graphs": BELOW_NODES | {"sandbox", "nodes", "batch"},
    "batch": BELOW_NODES | {"sandbox", "nodes", "graphs"},
    "cli": BELOW_NODES | {"sandbox", "nodes", "graphs", "batch"},
}
OUTSIDE = {"benchmarks", "tests"}


def imported(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported anywhere in a module of `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            parts = [*start, *(node.module or "").split(".")]
            base = ".".join(filter(None, parts))
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if function in {"import_module", "__import__", "find_spec"}:
                yield node.lineno, str(node.args[0].value)


def violations(root: Path, may_import: dict[str, set[str]]) -> list[str]:
    found = []
    for folder, allowed in may_import.items():
        for file in sorted((root / folder).rglob("*.py")):
            path = file.relative_to(root)
            for line, name in imported(ast.parse(file.read_text()), ["reflexion", *path.parent.parts]):
                first, second, *_ = *name.split("."), ""
                room = second if first == "reflexion" else first
                ours = first == "reflexion" or first in may_import or first in OUTSIDE
                if ours and (first != "reflexion" or room not in {folder, *allowed}):
                    found.append(f"{path}:{line} imports {name}")
    return found


def test_no_import_goes_up_a_floor():
    assert violations(ROOT, MAY_IMPORT) == []


def test_every_product_folder_has_a_floor():
    assert {marker.parent.name for marker in ROOT.glob("*/py.typed")} <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("memory/a.py", "import reflexion.graphs.state"),
        ("memory/a.py", "from reflexion.evaluators import Evaluation"),
        ("memory/a.py", "from reflexion import nodes"),
        ("memory/a.py", "from ..graphs import state"),
        ("models/deep/a.py", "from ...memory.records import Lesson"),
        ("memory/__init__.py", "from .. import graphs"),
        ("models/a.py", "def f():\n    from reflexion.memory import Lesson"),
        ("models/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import reflexion.memory"),
        ("models/a.py", "import importlib\nimportlib.import_module('reflexion.memory')"),
        ("graphs/a.py", "from reflexion.testing import FakeServer"),
        ("graphs/a.py", "import reflexion.cli"),
        ("cli/a.py", "import benchmarks.suites"),
        ("cli/a.py", "from graphs import state"),
        ("nodes/a.py", "from reflexion.sandbox import run"),
    ],
)
def test_the_check_finds(tmp_path, file, source):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(source)
    assert len(violations(tmp_path, MAY_IMPORT)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("memory/a.py", "import asyncio, langgraph.graph\nfrom reflexion.models import Usage"),
        ("memory/deep/a.py", "from ..records import Lesson\nfrom . import b\nfrom ...models import Usage"),
        ("models/embedded/a.py", "from ..usage import Usage\nfrom reflexion.models.roles import Role"),
        ("cli/a.py", "from reflexion.graphs import open_reflexion\nfrom reflexion import memory"),
    ],
)
def test_the_check_lets_pass(tmp_path, file, source):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(source)
    assert violations(tmp_path, MAY_IMPORT) == []
