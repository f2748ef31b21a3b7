"""The command line runs in an empty folder, with no settings but those that a test makes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from reflexion.cli.app import app
from reflexion.testing import FakeOpenAI


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("REFLEXION_", "OPENAI_", "LANGSMITH_")) and not name.startswith("REFLEXION_TEST_"):
            monkeypatch.delenv(name)
    for chance in ("EXPLORE", "CONTROL"):
        monkeypatch.setenv(f"REFLEXION_MEMORY_{chance}", "0")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def model(server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> FakeOpenAI:
    """A server on which the model `m` plays every role."""
    monkeypatch.setenv("REFLEXION_BASE_URL", server.base_url)
    monkeypatch.setenv("REFLEXION_MODEL", "m")
    return server


@pytest.fixture
def reflexion() -> Callable[..., Result]:
    """Run the command; stdout and stderr are kept apart."""

    def run(*arguments: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)

    return run
