"""The commands of `reflexion threads` and their options."""

from typing import Annotated

import typer

from reflexion.cli.options import AsJson, Database, leave

threads = typer.Typer(name="threads", help="See which threads there are, and delete them.", no_args_is_help=True)


@threads.command("list")
def list_(database: Database = None, as_json: AsJson = False) -> None:
    """Show all threads with their size, the last used first."""
    from reflexion.cli.threads_work import show_all  # noqa: PLC0415

    leave(lambda: show_all(database, as_json=as_json))


@threads.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of threads.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Delete threads with their reflections and history; lessons and the ledger stay."""
    from reflexion.cli.threads_work import delete_named  # noqa: PLC0415

    leave(lambda: delete_named(names, database, as_json=as_json))


@threads.command()
def prune(
    days: Annotated[float, typer.Option(min=0, help="Only threads that have not been used for so many days.")],
    keep_last: Annotated[
        bool, typer.Option("--keep-last", help="Keep what they remember; delete the steps that led there.")
    ] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Delete threads that have not been used for long, those that wait for a review too."""
    from reflexion.cli.threads_work import prune_old  # noqa: PLC0415

    leave(lambda: prune_old(days, database, keep_last=keep_last, as_json=as_json))
