"""`reflexion batch`: its options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

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


def batch(
    tasks: Annotated[
        str | None, typer.Argument(metavar="IN.jsonl", help="Tasks, one JSON object a line; - reads them from stdin.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="File of the results, one JSON object a line; the same file again goes on.")
    ] = ...,  # type: ignore[assignment]
    dataset: Annotated[str | None, typer.Option(help="Take the tasks from this LangSmith dataset instead.")] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Send the results to LangSmith as an experiment of this name on the dataset.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Tasks at once.")] = 8,
    budget_usd: Annotated[str | None, typer.Option(help="Dollars that the whole batch may spend.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens that the whole batch may use.")] = None,
    max_time: Annotated[
        float | None, typer.Option(help="Seconds that this command may work; the same one again goes on.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run again what has failed, had no verdict, or was in error.")
    ] = False,
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Go on although settings or finished tasks are others than before."),
    ] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="End at the first task in error.")] = False,
    engine: Annotated[
        Literal["local", "temporal"], typer.Option(help="Run the tasks in this process, or on Temporal's workers.")
    ] = "local",
    threshold: Threshold = None,
    max_attempts: MaxAttempts = None,
    patience: Patience = None,
    attempt_style: AttemptStyle = None,
    generate_tests: GenerateTests = False,
    model: ModelName = None,
    cheaper_model: Annotated[
        str | None, typer.Option(help="Model to ask when less than half of the money or time is left.")
    ] = None,
    fallback: Fallback = None,
    base_url: BaseUrl = None,
    no_memory: NoMemory = False,
    namespace: Namespace = None,
    lang: Lang = None,
    prompts: Prompts = None,
    database: Database = None,
    what_if: Annotated[
        list[str] | None, typer.Option(help="Say what the same tokens would cost on this model; may be repeated.")
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Run nothing: say what --out holds.")] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")] = False,
) -> None:
    """Work on many tasks within one budget; the same command again goes on where it was broken off."""
    from reflexion.cli.batch_request import Request  # noqa: PLC0415

    request = Request(
        tasks=tasks,
        out=out,
        dataset=dataset,
        experiment=experiment,
        engine=engine,
        options=given(
            concurrency=concurrency,
            budget_usd=budget_usd,
            budget_tokens=budget_tokens,
            deadline_s=max_time,
            retry_failed=retry_failed,
            accept_changes=accept_changes,
            fail_fast=fail_fast,
        ),
        settings=given(
            threshold=threshold,
            max_attempts=max_attempts,
            patience=patience,
            attempt_style=attempt_style,
            generate_tests=generate_tests or None,
            model=model,
            cheaper_model=cheaper_model,
            fallback_models=tuple(fallback) if fallback else None,
            memory=False if no_memory else None,
            namespace=namespace,
            lang=lang,
        ),
        installation=given(base_url=base_url, database_url=database, prompts=prompts),
        what_if=what_if or [],
        as_json=as_json,
        quiet=quiet,
    )
    if summary:
        from reflexion.cli.batch_summary import tell_summary  # noqa: PLC0415

        leave(lambda: tell_summary(request))
    from reflexion.cli.batch_work import work_on  # noqa: PLC0415

    leave(lambda: work_on(request))
