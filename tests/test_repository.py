"""What holds for the repository as a whole."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = sorted(marker.parent for pattern in ("*", "*/*") for marker in ROOT.glob(f"{pattern}/__init__.py"))
PRODUCT = [folder for folder in PRODUCT if folder.relative_to(ROOT).parts[0] not in {"tests", "benchmarks", "build"}]

# Put together here, so that this file does not find itself.
HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "pypi" + ".python", "index" + "-url"]
MACHINE = ["/" + "work/", "/" + "root/", "/" + "home/", "/" + "Users/"]


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git work tree")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("words", [HOSTS, MACHINE], ids=["registry host", "machine path"])
def test_no_tracked_file_names_a(words):
    found = [
        f"{file.relative_to(ROOT)}: {word}"
        for file in tracked()
        for text in [file.read_bytes()]
        for word in words
        if word.encode() in text
    ]
    assert found == []


def test_the_lock_file_stays_out_of_git():
    ignored = subprocess.run(["git", "check-ignore", "--quiet", "uv.lock"], cwd=ROOT, check=False)
    assert ignored.returncode == 0 or not (ROOT / ".git").exists()
    assert ROOT / "uv.lock" not in tracked()


def test_every_product_file_can_be_read_in_one_go():
    lines = {file: len(file.read_text().splitlines()) for folder in PRODUCT for file in folder.glob("*.py")}
    assert lines
    assert {str(file.relative_to(ROOT)): count for file, count in lines.items() if count >= 400} == {}


def test_every_product_folder_is_typed_and_packaged():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {"reflexion." + ".".join(folder.relative_to(ROOT).parts): folder for folder in PRODUCT}
    assert sorted(setuptools["packages"]) == sorted(folders)
    assert {name: ROOT / path for name, path in setuptools["package-dir"].items()} == folders
    assert [name for name, folder in folders.items() if not (folder / "py.typed").is_file()] == []
