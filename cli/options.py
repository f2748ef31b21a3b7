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
GenerateTests = Annotated[
    bool, typer.Option("--generate-tests", help="Without tests, let the model write some, and run its code on them.")
]
Threshold = Annotated[float | None, typer.Option(help="Score from 0 to 1 that passes [0.8].")]
MaxAttempts = Annotated[int | None, typer.Option(help="Attempts at the most [3].")]
Patience = Annotated[int | None, typer.Option(help="End after so many attempts without a better score.")]
AttemptStyle = Annotated[str | None, typer.Option(help="fresh, revise or auto [auto].")]
Fallback = Annotated[
    list[str] | None, typer.Option(help="Model to ask where the one before cannot answer; may be repeated.")
]
NoMemory = Annotated[bool, typer.Option("--no-memory", help="Neither use lessons nor leave any.")]
Namespace = Annotated[str | None, typer.Option(help="Namespace of the lessons.")]
Lang = Annotated[str | None, typer.Option(help="Language of the prompts: en or de [en].")]
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
