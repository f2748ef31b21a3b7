"""What is installed from the wheel works, wherever it is called from."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]


def run(*command: str | Path, cwd: Path) -> str:
    # Without the variable, uv would install into the environment that runs this test.
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    result = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Built from a copy: setuptools packs whatever an earlier build has left in build/.
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    run("uv", "build", "--wheel", "--out-dir", folder, cwd=source)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """A Python with the wheel and what it depends on, nothing else."""
    folder = wheel.parent
    (folder / "constraints.txt").write_text("\n".join(SETTINGS["uv"]["constraint-dependencies"]))
    run("uv", "venv", "--no-project", "--python", sys.executable, "venv", cwd=folder)
    interpreter = folder / "venv" / "bin" / "python"
    run("uv", "pip", "install", "--python", interpreter, "--constraint", "constraints.txt", wheel, cwd=folder)
    return interpreter


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The folder of somebody whose own packages have our folders' names."""
    for name in ("graphs", "nodes", "memory", "prompts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('the wrong {name}')")
    return tmp_path


def test_the_wheel_holds_the_product_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    folders = SETTINGS["setuptools"]["package-dir"].values()
    assert [f for f in folders if f"reflexion/{f}/py.typed" not in names] == []
    prompts = {f"reflexion/{file.relative_to(ROOT)}" for file in (ROOT / "prompts").rglob("*.md")}
    assert prompts
    assert prompts <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "reflexion",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    assert [name for name in names if {"tests", "benchmarks"} & set(name.split("/"))] == []


def test_the_command_runs_beside_packages_of_the_same_names(python, elsewhere):
    assert "Usage" in run(python.with_name("reflexion"), "--help", cwd=elsewhere)


def test_the_import_works_beside_packages_of_the_same_names(python, elsewhere):
    run(python, "-c", "from reflexion.graphs import open_reflexion", cwd=elsewhere)
