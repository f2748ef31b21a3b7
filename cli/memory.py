"""The commands of `reflexion memory` and their options."""

from pathlib import Path
from typing import Annotated

import typer

from reflexion.cli.options import AsJson, BaseUrl, Database, ModelName, Prompts, given, leave

memory = typer.Typer(
    name="memory", help="Look into what was learned, correct it, and carry it elsewhere.", no_args_is_help=True
)

Namespace = Annotated[str | None, typer.Option(help="Namespace of the lessons [default].")]


@memory.command("list")
def list_(namespace: Namespace = None, database: Database = None, as_json: AsJson = False) -> None:
    """Show all lessons, the last seen or used first."""
    from reflexion.cli.memory_work import Place, show_all  # noqa: PLC0415

    leave(lambda: show_all(Place(database, namespace, as_json)))


@memory.command()
def search(
    text: Annotated[str, typer.Argument(help="A task.")],
    limit: Annotated[int, typer.Option(min=1, help="Lessons at most.")] = 10,
    namespace: Namespace = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show the lessons of the most similar tasks."""
    from reflexion.cli.memory_work import Place, search_tasks  # noqa: PLC0415

    leave(lambda: search_tasks(Place(database, namespace, as_json), text, limit))


@memory.command()
def show(
    lesson: Annotated[str, typer.Argument(metavar="ID", help="The lesson's id, or its beginning.")],
    namespace: Namespace = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show a lesson with the runs that it came of and those that used it."""
    from reflexion.cli.memory_work import Place, show_one  # noqa: PLC0415

    leave(lambda: show_one(Place(database, namespace, as_json), lesson))


@memory.command()
def forget(
    lessons: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids of lessons.")] = None,
    run: Annotated[str | None, typer.Option(metavar="RUN_ID", help="A run, and all that came of it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything in the namespace.")] = False,
    namespace: Namespace = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Forget lessons for good: one, many, those of a run, or all."""
    from reflexion.cli.memory_work import Place, forget_lessons  # noqa: PLC0415

    leave(lambda: forget_lessons(Place(database, namespace, as_json), lessons or [], run=run, everything=everything))


@memory.command()
def stats(namespace: Namespace = None, database: Database = None, as_json: AsJson = False) -> None:
    """Say whether memory helps: pass rates with lessons and without, in all and by lesson."""
    from reflexion.cli.memory_work import Place, show_effect  # noqa: PLC0415

    leave(lambda: show_effect(Place(database, namespace, as_json)))


@memory.command()
def prune(
    lessons: Annotated[int | None, typer.Option(min=0, help="Keep so many lessons at most [10000].")] = None,
    unseen_days: Annotated[
        float | None, typer.Option(min=0, help="Keep no lesson that no run came to or used for longer [for ever].")
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=0, help="Keep so many episodes at most [2000].")] = None,
    days: Annotated[float | None, typer.Option(min=0, help="Keep no episode that is older [180].")] = None,
    namespace: Namespace = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Forget what is too much or too old, as it also happens now and then by itself."""
    from reflexion.cli.memory_work import Place, prune_memory  # noqa: PLC0415

    place = Place(database, namespace, as_json)
    leave(lambda: prune_memory(place, lessons=lessons, unseen_days=unseen_days, episodes=episodes, days=days))


@memory.command()
def consolidate(
    out: Annotated[Path | None, typer.Option(help="File to keep what is proposed in.")] = None,
    apply: Annotated[Path | None, typer.Option(help="Do what such a file says, without a model.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Groups of alike lessons at most.")] = 20,
    model: ModelName = None,
    base_url: BaseUrl = None,
    budget_usd: Annotated[str | None, typer.Option(help="Dollars that it may spend.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens that it may use.")] = None,
    lang: Annotated[str | None, typer.Option(help="Language of the prompts: en or de [en].")] = None,
    prompts: Prompts = None,
    namespace: Namespace = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Ask the model which alike lessons to merge, reword, add and retire; --apply does what it said."""
    from reflexion.cli.memory_consolidate import apply_file, consolidate_lessons  # noqa: PLC0415

    settings = given(model=model, budget_usd=budget_usd, budget_tokens=budget_tokens, lang=lang, namespace=namespace)
    installation = given(base_url=base_url, database_url=database, prompts=prompts)
    if apply is None:
        leave(lambda: consolidate_lessons(settings, installation, out=out, limit=limit, as_json=as_json))
    else:
        others = given(out=out, base_url=base_url, prompts=prompts, **settings)
        leave(lambda: apply_file(apply, others, database, as_json=as_json))


@memory.command()
def reindex(database: Database = None, as_json: AsJson = False) -> None:
    """Make the index by which lessons are found anew, as after a change of the embedding model."""
    from reflexion.cli.memory_work import Place, reindex_store  # noqa: PLC0415

    leave(lambda: reindex_store(Place(database, None, as_json)))


@memory.command("export")
def export_(
    file: Annotated[Path | None, typer.Argument(help="File to write; without it, to stdout.")] = None,
    namespace: Namespace = None,
    database: Database = None,
    as_json: Annotated[bool, typer.Option("--json", help="The lines are JSON in any case.", hidden=True)] = False,
) -> None:
    """Write all lessons as JSON lines."""
    from reflexion.cli.memory_work import Place, export_lessons  # noqa: PLC0415

    leave(lambda: export_lessons(Place(database, namespace, as_json), file))


@memory.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="JSON lines of `export`, or any with `task` and `text`.")],
    namespace: Namespace = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Add lessons of a file; they have yet to prove themselves here."""
    from reflexion.cli.memory_work import Place, import_lessons  # noqa: PLC0415

    leave(lambda: import_lessons(Place(database, namespace, as_json), file))
