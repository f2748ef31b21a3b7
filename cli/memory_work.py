"""What the commands of `reflexion memory` do."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reflexion.cli.options import PASSED, given
from reflexion.graphs import ConfigurationError
from reflexion.graphs.installation import read_installation
from reflexion.memory import Comparison, Gone, Keep, KnownLesson, Memory, open_memory
from reflexion.memory.room import DAY_S
from reflexion.models.intervals import Rate
from reflexion.nodes import Settings, make_settings

T = TypeVar("T")

SHOWN = 100
"""Characters of a text in a table."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which memory, and how it is shown."""

    database: str | None
    namespace: str | None
    as_json: bool

    @property
    def settings(self) -> Settings:
        """Those of a run that uses this memory.

        Raises:
            ConfigurationError: the namespace or the environment cannot be used.
        """
        return make_settings(**given(namespace=self.namespace))

    def work(self, work: Callable[[Memory], Awaitable[T]], *, embeds: bool = False) -> T:
        """Open the memory and do something with it.

        Args:
            work: what is done.
            embeds: it looks for tasks or writes new ones, so that the embeddings are wanted, which take time to load.

        Raises:
            ConfigurationError: the namespace or the environment cannot be used.
            DatabaseError: the database cannot be opened.
        """
        namespace = self.settings.namespace
        installation = read_installation(**given(database_url=self.database))
        embeddings = embeds and installation.embeds

        async def opened() -> T:
            async with open_memory(installation.database_url, namespace, embeddings=embeddings) as memory:
                return await work(memory)

        return asyncio.run(opened())

    def say(self, found: Any, *shown: Text | Table | str) -> int:
        """Print the JSON, or what people are to see."""
        console = Console(width=None if Console().is_terminal else 10_000)
        if self.as_json:
            print(json.dumps(found, ensure_ascii=False))  # noqa: T201
            return PASSED
        for part in shown:
            console.print(Text(part) if isinstance(part, str) else part, highlight=False, soft_wrap=True)
        return PASSED


def show_all(place: Place) -> int:
    """`reflexion memory list`."""
    known = place.work(lambda memory: memory.lessons())
    return place.say({"lessons": [_short(each) for each in known]}, _table(known) if known else "no lessons")


def search_tasks(place: Place, text: str, limit: int) -> int:
    """`reflexion memory search`."""
    found = place.work(lambda memory: memory.search(text, limit), embeds=True)
    as_json = [{"similarity": round(similarity, 3), **_short(known)} for similarity, known in found]
    if not found:
        return place.say({"lessons": []}, "no lesson of a task like this one")
    return place.say({"lessons": as_json}, _table([known for _, known in found], [f"{s:.2f}" for s, _ in found]))


def show_one(place: Place, key: str) -> int:
    """`reflexion memory show`."""
    known = place.work(lambda memory: _find(memory, [key]))[0]
    lines = [f"{known.id}  {known.state}", known.lesson["text"], f"task: {known.lesson['task']}"]
    if known.superseded_by:
        lines.append(f"superseded by {known.superseded_by}")
    lines.append(f"came to by {known.seen} runs, used by {known.used}, helped {known.helped}, hurt {known.hurt}")
    for origin in known.evidence:
        evidence = origin["evidence"]
        confirmed = ", and the next one passed" if evidence["confirmed"] else ""
        lines.append(
            f"  learned by run {origin['run_id']} on thread {evidence['thread_id']}, {_date(origin['at'])}: attempt "
            f"{evidence['attempt']} had failed by {evidence['evaluator'] or 'an evaluator'}{confirmed}"
        )
        lines += [f"    in its words: {evidence['text']}"] if evidence["text"] != known.lesson["text"] else []
        lines += [f"    verdict: {' '.join(evidence['verdict'].split())}"] if evidence["verdict"] else []
    for each in known.experiences:
        if use := each["use"]:
            how = (
                f"{'passed' if use['passed'] else 'failed'} at first, which without it {use['expected']:.0%} would pass"
            )
            lines.append(f"  used by run {each['run_id']}, {_date(each['at'])}: {how}: {use['outcome']}")
    for each, decision in known.decisions:
        lines.append(f"  {decision['operation']} by {each['run_id']}, {_date(each['at'])}: {decision['why']}")
    return place.say(known.as_json(), *lines)


def forget_lessons(place: Place, keys: Sequence[str], *, run: str | None, everything: bool) -> int:
    """`reflexion memory forget`."""
    if (bool(keys) + (run is not None) + everything) != 1:
        raise ConfigurationError("forget what? Give ids of lessons, or --run RUN_ID, or --all")

    async def forget(memory: Memory) -> Gone:
        if everything:
            return await memory.forget_all()
        if run is not None:
            return await memory.forget_run(run)
        return await memory.forget([each.id for each in await _find(memory, keys)])

    return _gone(place, place.work(forget))


def show_effect(place: Place) -> int:
    """`reflexion memory stats`."""

    async def look(memory: Memory) -> tuple[list[KnownLesson], Any]:
        return await memory.lessons(), await memory.effect()

    known, effect = place.work(look)
    none = Comparison(Rate(0, 0), Rate(0, 0))
    by_lesson = {each.id: effect.by_lesson.get(each.id, none) for each in known}
    states = {state: sum(each.state == state for each in known) for state in _STATES}
    found = effect.as_json() | {
        "states": states,
        "by_lesson": {each.id: _short(each) | by_lesson[each.id].as_json() for each in known},
    }
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("lesson", "state", "used", "helped", "hurt", "passed with", "passed without", "text"):
        table.add_column(name)
    for each in known:
        compared = by_lesson[each.id]
        table.add_row(
            each.id, each.state, str(each.used), str(each.helped), str(each.hurt), _rate(compared.given),
            _rate(compared.withheld), Text(_cut(each.lesson["text"])),
        )  # fmt: skip
    total = effect.total
    return place.say(
        found,
        f"{len(known)} lessons: " + ", ".join(f"{count} {state}" for state, count in states.items()),
        f"first attempts passed with a lesson: {_rate(total.given)}; with it withheld: {_rate(total.withheld)}",
        total.verdict,
        *([table] if known else []),
    )


def prune_memory(
    place: Place, *, lessons: int | None, unseen_days: float | None, episodes: int | None, days: float | None
) -> int:
    """`reflexion memory prune`."""
    settings = place.settings
    keep = Keep(
        lessons=settings.memory_lessons if lessons is None else lessons,
        days=settings.memory_days if unseen_days is None else unseen_days,
    )
    limits = given(episodes=episodes, older_than_s=None if days is None else days * DAY_S)
    return _gone(place, place.work(lambda memory: memory.prune(keep, **limits)))


def reindex_store(place: Place) -> int:
    """`reflexion memory reindex`."""
    done = place.work(lambda memory: memory.reindex(), embeds=True)
    return place.say({"reindexed": done}, "indexed anew" if done else "this database has no index")


def export_lessons(place: Place, file: Path | None) -> int:
    """`reflexion memory export`."""
    lines = place.work(lambda memory: memory.export_lines())
    if file is None:
        print("".join(f"{line}\n" for line in lines), end="")  # noqa: T201
        return PASSED
    try:
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written: {error}") from error
    return place.say({"exported": len(lines)}, f"{len(lines)} lessons exported")


def import_lessons(place: Place, file: Path) -> int:
    """`reflexion memory import`."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from error
    added = place.work(lambda memory: memory.import_lines(lines), embeds=True)
    return place.say({"imported": added}, f"{added} lessons imported, as candidates")


_STATES = ("active", "candidate", "quarantined", "retired")


async def _find(memory: Memory, keys: Sequence[str]) -> list[KnownLesson]:
    known = await memory.lessons()
    found = []
    for key in keys:
        # The first half of an id is the task's, the second the lesson's own.
        fitting = [
            each for each in known if key and (each.id.startswith(key) or each.id.partition("-")[2].startswith(key))
        ]
        if len(fitting) != 1:
            what = "more than one lesson begins with" if fitting else "there is no lesson"
            raise ConfigurationError(f"{what} {key!r} in this namespace: `reflexion memory list` shows them")
        found += fitting
    return found


def _gone(place: Place, gone: Gone) -> int:
    return place.say(asdict(gone), f"{gone.lessons} lessons and {gone.episodes} episodes forgotten")


def _short(known: KnownLesson) -> dict[str, Any]:
    return {name: value for name, value in known.as_json().items() if name not in {"evidence", "uses"}}


def _table(known: Sequence[KnownLesson], similarity: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    names = ("id", "state", "used", "helped", "hurt", "task", "text")
    for name in (*(("alike",) if similarity else ()), *names):
        table.add_column(name)
    for number, each in enumerate(known):
        texts = (Text(_cut(each.lesson["task"], 40)), Text(_cut(each.lesson["text"])))
        counts = (str(each.used), str(each.helped), str(each.hurt))
        table.add_row(*similarity[number : number + 1], each.id, each.state, *counts, *texts)
    return table


def _cut(text: str, longest: int = SHOWN) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def _rate(rate: Rate) -> str:
    if rate.value is None:
        return "–"
    return f"{rate.value:.0%} of {rate.of} ({rate.low:.0%}–{rate.high:.0%})"


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
