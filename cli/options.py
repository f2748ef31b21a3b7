"""What the commands have in common: options, exit codes, and how they end."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

PASSED, NOT_PASSED, WRONG_USE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes."""

BaseUrl = Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1.")]
ModelName = Annotated[
    str | None, typer.Option(help="Model of all roles: a name, profile:NAME, or a GGUF file for the embedded server.")
]
Database = Annotated[str | None, typer.Option(help="sqlite:///FILE, postgresql://… or memory://.")]
Prompts = Annotated[Path | None, typer.Option(help="Folder with prompt files of your own.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


def given(**values: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def leave(command: Callable[[], int]) -> None:
    """Run a command and exit with its code; its own errors become one line and an exit code."""
    from reflexion.cli.errors import EXPECTED, one_line  # noqa: PLC0415

    try:
        code = command()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except EXPECTED as error:
        print(f"reflexion: {one_line(error)}", file=sys.stderr)  # noqa: T201
        code = WRONG_USE
    raise typer.Exit(code)
