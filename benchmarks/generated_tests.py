"""How far can tests be trusted that a model wrote itself, and does checking them first help?

    uv run python benchmarks/generated_tests.py recorded [FILE...]
    uv run python benchmarks/generated_tests.py humaneval [--limit N] [--out FILE]
    uv run python benchmarks/generated_tests.py examples

`recorded` replays Reflexion's own runs on MBPP (GPT-4, 2023): each attempt, in order, is judged by the tests that the
model wrote, as they stand and after checking, and compared with the hidden tests. Without FILE it takes the 68 tasks
in `tests/data`, which were picked so that every kind of failure is among them: no rate can be read off them.

`humaneval` lets the configured model, or the embedded one, write tests for HumanEval tasks, and puts the solution and
some copies of it with one mistake each to them. What is right and what is wrong is decided by HumanEval's own tests.

`examples` reads the examples in the docstrings of HumanEval, and puts the solutions to them.
"""

import argparse
import ast
import asyncio
import copy
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mutation import mutate

from reflexion.evaluators.generated_tests import GeneratedTests, write_tests
from reflexion.evaluators.own_tests import OwnTests, counted, from_task, read_tests, usable
from reflexion.evaluators.records import Attempt, Task
from reflexion.evaluators.task_text import examples, function_asked_for
from reflexion.evaluators.validation import program, reject_by_trials, try_out
from reflexion.models import Completer, ConnectionSettings, Meter, Models, Reply
from reflexion.nodes.attempts import same_answer
from reflexion.prompts import PromptBook
from reflexion.sandbox import Limits, judge

DATA = Path(__file__).parent.parent / "tests" / "data"
RECORDED = DATA / "mbpp_replay_small.jsonl.gz"
LIMITS = Limits(wall_s=30, cpu_s=10)
MUTANTS = 3
Verdict = bool | None
"""Passed or failed; None for no verdict."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.decode().splitlines()]


def attempt_of(code: str, number: int = 1) -> Attempt:
    return Attempt(number=number, answer=f"```python\n{code}\n```", plan="", style="first")


def all_passed(score: float | None) -> Verdict:
    return None if score is None else score == 1


def table(title: str, ways: dict[str, Iterable[tuple[Verdict, bool]]]) -> None:
    """Print how often verdicts and hidden tests agree."""
    print(f"\n{title:<44} {'passed':>14} {'failed':>14} {'no verdict':>14}")
    print(f"{'':<44} {'right  wrong':>14} {'right  wrong':>14} {'right  wrong':>14}")
    for way, verdicts in ways.items():
        counts = Counter(verdicts)
        cells = [f"{counts[verdict, True]:>7}{counts[verdict, False]:>7}" for verdict in (True, False, None)]
        print(f"{way:<44} {' '.join(cells)}")


async def replay(row: dict[str, Any]) -> dict[str, Any]:
    """One recorded run: the verdicts on its attempts in each way of judging, and what became of its tests."""
    function = row["entry_point"]
    assert function == function_asked_for(row["prompt"])
    own = OwnTests(function=function, tests=read_tests("\n".join(row["own_tests"]), function), problem="")
    places = {ast.unparse(ast.parse(source)): place for place, source in reversed(list(enumerate(row["own_tests"])))}
    trials = await try_out(own, examples(row["prompt"], function), LIMITS)
    assert not isinstance(trials, str), trials
    fulfilled = {test["source"] for test, trial in zip(counted(own), trials, strict=True) if trial.stubs}
    reject_by_trials(own, trials)
    strict = copy.deepcopy(own)
    strict["tests"] = [test for test in strict["tests"] if test["source"] not in fulfilled]
    verdicts: dict[str, list[tuple[Verdict, bool]]] = {"written": [], "tried": [], "strict": []}
    agreed: dict[int, Verdict] = {}
    before: list[Attempt] = []
    for number, recorded in enumerate(row["attempts"], start=1):
        hidden = recorded["hidden_pass"]
        attempt = attempt_of(recorded["code"], number)
        repeated = same_answer(attempt, before)
        if repeated:
            attempt["repeats"] = repeated["number"]
        before.append(attempt)
        verdicts["written"].append((recorded["own_pass"], hidden))
        for name, kept in (("tried", own), ("strict", strict)):
            passed = [recorded["own_tests"] and recorded["own_tests"][places[t["source"]]] for t in _at_first(kept)]
            verdicts[name].append((all(passed) if passed else None, hidden))
        if usable(own) and not repeated:
            evaluator = GeneratedTests(own, LIMITS)
            agreed[number] = all_passed((await evaluator.evaluate(Task(text=row["prompt"]), attempt)).score)
            own = evaluator.own
            agreed |= {earlier: all_passed(again.score) for earlier, again in evaluator.reconsidered.items()}
    verdicts["agreed"] = [
        (agreed.get(attempt.get("repeats", attempt["number"])), recorded["hidden_pass"])
        for attempt, recorded in zip(before, row["attempts"], strict=True)
    ]
    tests = [
        (_label(row, places[test["source"]]), _reason(test["rejected"]), test["source"] in fulfilled)
        for test in own["tests"]
    ]
    return {"verdicts": verdicts, "tests": tests}


def _at_first(own: OwnTests) -> list[Any]:
    """The tests that counted before any attempt."""
    return [test for test in own["tests"] if not test["rejected"] or "agree on" in test["rejected"]]


def _label(row: dict[str, Any], place: int) -> str:
    """Whether a test is right, as far as the attempts tell that pass the hidden tests."""
    said = {one["own_tests"][place] for one in row["attempts"] if one["hidden_pass"] and one["own_tests"]}
    return {(): "unknown", (True,): "right", (False,): "wrong"}.get(tuple(said), "contested")


def _reason(rejected: str) -> str:
    kinds = {"agree on": "attempts agree", "all other tests": "a stub passes all", "it holds for": "proves nothing"}
    kinds |= {"plain values": "not plain", "examples say": "contradicts the task"}
    return next((kind for part, kind in kinds.items() if part in rejected), rejected)


async def recorded(paths: Sequence[Path]) -> None:
    rows = [row for path in paths for row in rows_of(path)]
    done = await asyncio.gather(*map(replay, rows))
    print(f"{len(rows)} recorded runs, {sum(len(row['attempts']) for row in rows)} attempts")
    names = {
        "written": "as written",
        "tried": "checked before any attempt",
        "agreed": "and, in the end, by agreement of the attempts",
        "strict": "without every test that any stub passes",
    }
    for title, part in (
        ("first attempts, all tests passed", slice(1)),
        ("all attempts, all tests passed", slice(None)),
    ):
        ways = {text: [pair for one in done for pair in one["verdicts"][name][part]] for name, text in names.items()}
        table(title, ways)
    labels = ("right", "wrong", "contested", "unknown")
    print(f"\n{'tests, by the attempts that are right':<44}" + "".join(f"{label:>11}" for label in labels))
    tests = [test for one in done for test in one["tests"]]
    kinds = Counter(reason or "kept" for _, reason, _ in tests)
    for kind in kinds:
        counts = Counter(label for label, reason, _ in tests if (reason or "kept") == kind)
        print(f"{kind:<44}" + "".join(f"{counts[label]:>11}" for label in labels))
    counts = Counter(label for label, _, fulfilled in tests if fulfilled)
    print(f"{'(any stub passes it)':<44}" + "".join(f"{counts[label]:>11}" for label in labels))


class Heard:
    """A client that keeps what the model replied."""

    def __init__(self, client: Completer) -> None:
        self._client = client
        self.embedded = client.embedded
        self.reply = ""

    async def complete(self, *given: Any, **named: Any) -> Reply:
        reply = await self._client.complete(*given, **named)
        self.reply = reply.text
        return reply


async def written_by_model(problem: dict[str, Any], models: Models, prompts: PromptBook) -> dict[str, Any]:
    """Let the model write tests for a problem, and put labelled candidates to them."""
    function, text = problem["entry_point"], "Complete this function:\n\n" + problem["prompt"]
    client = Heard(models.client("evaluator"))
    own = await write_tests(text, client, Meter(role="evaluator", attempt=1), prompts, "en", LIMITS)
    stated = OwnTests(function=function, tests=[from_task(e) for e in examples(text, function)], problem="")
    written = [test["source"] for test in read_tests(client.reply, function)]
    solution = problem["prompt"] + problem["canonical_solution"]
    codes = {solution, *(mutate(solution, function, f"{seed}")[1] for seed in range(MUTANTS))}
    candidates = []
    for code in sorted(codes):
        hidden = await judge(code, problem["test"], entry=function, limits=LIMITS)
        by_all = await judge(code, program(written), entry=function, limits=LIMITS) if written else None
        verdicts: dict[str, Verdict] = {"written": by_all.passed if by_all else None}
        for name, tests in (("checked", own), ("examples", stated)):
            evaluator = GeneratedTests(tests, LIMITS) if usable(tests) else None
            score = (await evaluator.evaluate(Task(text=text), attempt_of(code))).score if evaluator else None
            verdicts[name] = all_passed(score)
        candidates.append({"hidden": hidden.passed, "solution": code == solution, **verdicts})
    sources = [test["source"] for test in own["tests"]]
    truth = await judge(solution, program(sources), entry=function, limits=LIMITS)
    tests = [
        {**test, "right": result.passed}
        for test, result in zip(own["tests"], truth.results, strict=False)
        if test["origin"] == "model"
    ]
    return {"task_id": problem["task_id"], "candidates": candidates, "tests": tests, "reply": client.reply}


async def humaneval(limit: int, out: Path | None) -> None:
    models, prompts = Models(ConnectionSettings()), PromptBook.load()
    problems = rows_of(DATA / "HumanEval.jsonl.gz")[:limit]
    done = []
    for problem in problems:
        done.append(await written_by_model(problem, models, prompts))
        tests = done[-1]["tests"]
        kept = sum(not test["rejected"] for test in tests)
        right = sum(test["right"] for test in tests)
        print(f"{problem['task_id']:<14} {len(tests):>3} tests, {right:>3} right, {kept:>3} kept", flush=True)
        if out:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(done[-1]) + "\n")
    await models.aclose()
    candidates = [candidate for one in done for candidate in one["candidates"]]
    names = {
        "written": "the model's tests as written",
        "checked": "checked, beside the task's examples",
        "examples": "the task's examples alone",
    }
    ways = {text: [(one[name], one["hidden"]) for one in candidates] for name, text in names.items()}
    table(f"{len(candidates)} candidates of {len(done)} tasks", ways)
    tests = [test for one in done for test in one["tests"]]
    print(f"\n{'tests':<44} {'right':>7}{'wrong':>7}")
    for kind in dict.fromkeys(_reason(test["rejected"]) or "kept" for test in tests):
        these = [test for test in tests if (_reason(test["rejected"]) or "kept") == kind]
        right = sum(test["right"] for test in these)
        print(f"{kind[:44]:<44} {right:>7}{len(these) - right:>7}")


async def stated_examples() -> None:
    async def failing(problem: dict[str, Any]) -> tuple[int, list[str]]:
        function = problem["entry_point"]
        assert function == function_asked_for(problem["prompt"])
        sources = [from_task(example)["source"] for example in examples(problem["prompt"], function)]
        if not sources:
            return 0, []
        solution = problem["prompt"] + problem["canonical_solution"]
        verdict = await judge(solution, program(sources), entry=function, limits=LIMITS)
        failed = [result for result in verdict.results if not result.passed]
        return len(sources), [f"{problem['task_id']}: {result.name}, got {result.got}" for result in failed]

    found = await asyncio.gather(*map(failing, rows_of(DATA / "HumanEval.jsonl.gz")))
    print(
        f"{sum(count for count, _ in found)} examples in {sum(count > 0 for count, _ in found)} of {len(found)} tasks;"
    )
    print("the solutions fail:", *(line for _, lines in found for line in lines), sep="\n  ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    replaying = commands.add_parser("recorded")
    replaying.add_argument("files", nargs="*", type=Path, default=[RECORDED], help="JSONL, gzipped or not")
    writing = commands.add_parser("humaneval")
    writing.add_argument("--limit", type=int, default=24, help="only the first N tasks [24]")
    writing.add_argument("--out", type=Path, help="write one JSON object a task to this file")
    commands.add_parser("examples")
    given = parser.parse_args()
    match given.command:
        case "recorded":
            asyncio.run(recorded(given.files))
        case "humaneval":
            asyncio.run(humaneval(given.limit, given.out))
        case "examples":
            asyncio.run(stated_examples())


if __name__ == "__main__":
    main()
