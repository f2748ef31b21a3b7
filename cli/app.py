"""The commands and their options. What they need is imported when they run: `--help` should not take seconds."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from reflexion.cli.batch import batch
from reflexion.cli.memory import memory
from reflexion.cli.options import (
    AsJson,
    AttemptStyle,
    BaseUrl,
    Database,
    Fallback,
    GenerateTests,
    Lang,
    MaxAttempts,
    ModelName,
    Namespace,
    NoMemory,
    Patience,
    Prompts,
    Threshold,
    given,
    leave,
)
from reflexion.cli.threads import threads

app = typer.Typer(
    name="reflexion",
    help="A Reflexion agent: it attempts a task, is judged, reflects, plans, tries again and remembers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(memory)
app.add_typer(threads)
app.command()(batch)


@app.command()
def run(
    task: Annotated[
        str | None, typer.Argument(help="The task; - reads it from stdin; none goes on with --thread.")
    ] = None,
    tests: Annotated[Path | None, typer.Option(help="Python file of tests that a right answer passes.")] = None,
    expect: Annotated[
        str | None, typer.Option(help="Expected answer: TEXT, re:PATTERN, num:3.14±0.01 or json:{schema}.")
    ] = None,
    generate_tests: GenerateTests = False,
    criteria: Annotated[list[str] | None, typer.Option(help="What a critic is to look at; may be repeated.")] = None,
    threshold: Threshold = None,
    max_attempts: MaxAttempts = None,
    patience: Patience = None,
    attempt_style: AttemptStyle = None,
    review: Annotated[
        str | None,
        typer.Option(help="Ask before an answer is accepted (answer), before another attempt (attempt), or both."),
    ] = None,
    decision: Annotated[
        str | None,
        typer.Option(help='On the review that --thread waits for: approve, stop, reject, or JSON with "action".'),
    ] = None,
    thread: Annotated[
        str | None, typer.Option(help="Thread whose reflections are kept; resumes what it broke off.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for a busy thread.")] = 0.0,
    model: ModelName = None,
    base_url: BaseUrl = None,
    budget_usd: Annotated[str | None, typer.Option(help="Dollars that the run may spend.")] = None,
    fallback: Fallback = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens that the run may use.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds that the run may work.")] = None,
    no_memory: NoMemory = False,
    namespace: Namespace = None,
    lang: Lang = None,
    prompts: Prompts = None,
    database: Database = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer and nothing else.")] = False,
) -> None:
    """Work on one task and watch it."""
    from reflexion.cli.run import Request, run_task  # noqa: PLC0415

    settings = {
        "generate_tests": generate_tests or None,
        "threshold": threshold,
        "max_attempts": max_attempts,
        "patience": patience,
        "attempt_style": attempt_style,
        "review": review,
        "model": model,
        "fallback_models": tuple(fallback) if fallback else None,
        "budget_usd": budget_usd,
        "budget_tokens": budget_tokens,
        "deadline_s": deadline,
        "memory": False if no_memory else None,
        "namespace": namespace,
        "lang": lang,
    }
    request = Request(
        task=task,
        tests=tests,
        expect=expect,
        criteria=criteria or [],
        thread=thread,
        wait_s=wait,
        decision=decision,
        settings={name: value for name, value in settings.items() if value is not None},
        installation=given(base_url=base_url, database_url=database, prompts=prompts),
        as_json=as_json,
        quiet=quiet,
    )
    leave(lambda: run_task(request))


@app.command()
def calibrate(
    file: Annotated[
        Path, typer.Argument(help="Labelled examples: one JSON object a line, with task, answer and truth.")
    ],
    threshold: Threshold = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many of the first examples.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Examples judged at once.")] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Append verdicts to this file; those it has are not paid for again.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw scores and thresholds into FILE.png or FILE.svg.")] = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    budget_usd: Annotated[str | None, typer.Option(help="Dollars that the calibration may spend.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens that the calibration may use.")] = None,
    lang: Lang = None,
    prompts: Prompts = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Say how far the evaluator of your tasks can be trusted, from answers known to be right or wrong."""
    from reflexion.cli.calibrate import Request, calibrate_file  # noqa: PLC0415

    request = Request(
        file=file,
        limit=limit,
        concurrency=concurrency,
        out=out,
        picture=picture,
        settings=given(threshold=threshold, model=model, budget_usd=budget_usd, budget_tokens=budget_tokens, lang=lang),
        installation=given(base_url=base_url, database_url=database, prompts=prompts),
        as_json=as_json,
    )
    leave(lambda: calibrate_file(request))


@app.command()
def graph(
    png: Annotated[Path | None, typer.Option(help="Write a picture to this file instead.")] = None,
) -> None:
    """Print the graph as Mermaid."""
    from reflexion.cli.graph import draw  # noqa: PLC0415

    leave(lambda: draw(png))


@app.command()
def studio(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port [2024, or a free one where that is taken].")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 10,
    database: Database = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the server's log.")] = False,
) -> None:
    """Serve the graph for LangGraph Studio and its SDK, on this machine alone."""
    from reflexion.cli.studio import serve  # noqa: PLC0415

    leave(lambda: serve(port, jobs=jobs, database=database, verbose=verbose))


@app.command()
def worker(
    concurrency: Annotated[int, typer.Option(min=1, help="Tasks at once.")] = 8,
    address: Annotated[str | None, typer.Option(help="Temporal's host and port [127.0.0.1:7233].")] = None,
    namespace: Annotated[str | None, typer.Option(help="Temporal's namespace [default].")] = None,
    task_queue: Annotated[str | None, typer.Option(help="Which batches it works for [reflexion].")] = None,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds that steps may still take when it is asked to end.")
    ] = 20.0,
    base_url: BaseUrl = None,
    database: Database = None,
    prompts: Prompts = None,
) -> None:
    """Work on the tasks of batches that `reflexion batch --engine temporal` hands out."""
    from reflexion.cli.worker import Request, run_worker  # noqa: PLC0415

    request = Request(
        place=given(address=address, namespace=namespace, task_queue=task_queue),
        installation=given(base_url=base_url, database_url=database, prompts=prompts),
        concurrency=concurrency,
        drain_s=drain,
    )
    leave(lambda: run_worker(request))


@app.command()
def doctor(
    model: ModelName = None,
    base_url: BaseUrl = None,
    database: Database = None,
    as_json: AsJson = False,
    stop_embedded: Annotated[
        bool, typer.Option("--stop-embedded", help="End the embedded model's server, and do nothing else.")
    ] = False,
) -> None:
    """Show what is configured, call each role's model once, and say what the endpoint supports."""
    from reflexion.cli.doctor import examine, stop_server  # noqa: PLC0415

    if stop_embedded:
        leave(stop_server)
    leave(lambda: examine(given(base_url=base_url, database_url=database), model=model, as_json=as_json))


def main() -> None:
    """Entry point."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a pipe that knows no umlauts must not cost an answer that is paid for.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
