"""A folder of its own for the sandboxes of a test, and the attacks that the benchmarks hold."""

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder under which every sandbox of this test has its own, so that its processes can be told apart."""
    folder = tmp_path / "boxes"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
