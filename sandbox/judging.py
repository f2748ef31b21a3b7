"""Judges a candidate by its tests: what the world calls, and the conclusion from how two processes ended."""

import ast
import asyncio
import builtins
import signal
import threading
from typing import Any

from reflexion.sandbox.collect import Collection, TestsInvalid, collect
from reflexion.sandbox.gate import gate
from reflexion.sandbox.layers import Unavailable, layers_for
from reflexion.sandbox.namespace import missing_libraries
from reflexion.sandbox.pair import Ending, run_pair
from reflexion.sandbox.parsing import parse_or_none
from reflexion.sandbox.records import Limits, TestResult, Verdict

_STARVED = 0.2
"""Share of the wall time without a CPU, although ready to run, from which on a timeout may be the machine's fault."""

_BUSY = 0.8
"""Share of the wall time with a CPU from which on it is not: its own threads keep each other waiting."""


async def judge(candidate: str, tests: str, *, entry: str | None = None, limits: Limits = Limits()) -> Verdict:  # noqa: B008
    """Run a candidate against its tests, each in a locked process of its own.

    The process with the candidate sees call arguments only. The process with the tests sends the verdict, and it
    counts only if every test that the text holds has reported. A wall timeout of processes that were kept waiting
    for a CPU is tried once more with nothing else running here.

    Args:
        candidate: Python source under test; nobody trusts it.
        tests: Python source of the tests (see `check_tests` for what counts as one).
        entry: the function that `check(candidate)` is called with; by default the last one the candidate defines.
        limits: time, memory and output.
    """
    try:
        collection = collect(tests, entry or "candidate")
    except TestsInvalid as error:
        return Verdict(state="tests_invalid", message=str(error))
    if not collection.tests:
        return Verdict(state="no_tests", message="the tests hold no assert and no test function, so nothing was run")
    if missing := missing_libraries(collection.statements, limits.packages):
        why = (
            f"the tests import {', '.join(missing)}, which has to be allowed: "
            f"`Limits(packages=({missing[0]!r},))`, REFLEXION_SANDBOX_PACKAGES={','.join(missing)}"
        )
        return Verdict(state="unavailable", message=why, collected=len(collection.tests))
    name = entry or (_last_function(candidate) if _needs_entry(collection) else "")
    collection = collect(tests, name or "candidate")
    try:
        layers = await asyncio.to_thread(layers_for, limits)
        async with gate().shared():
            ending = await _run(candidate, tests, name, limits, layers)
        if _kept_waiting(ending):
            async with gate().alone():
                ending = await _run(candidate, tests, name, limits, layers)
    except (Unavailable, OSError, ModuleNotFoundError) as error:
        return Verdict(state="unavailable", message=str(error), collected=len(collection.tests))
    return conclude(ending, collection, limits, layers)


async def _run(candidate: str, tests: str, entry: str, limits: Limits, layers: tuple[str, ...]) -> Ending:
    """Run the pair in a thread; when cancelled, end it and leave no process behind."""
    stop = threading.Event()
    running = asyncio.ensure_future(
        asyncio.to_thread(run_pair, candidate, tests, entry, limits=limits, layers=layers, stop=stop)
    )
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise


def _kept_waiting(ending: Ending) -> bool:
    starved, busy = ending.starved_s > _STARVED * ending.wall_s, sum(ending.cpu_s) > _BUSY * ending.wall_s
    return ending.wall_timeout and starved and not busy


def _needs_entry(collection: Collection) -> bool:
    return collection.has_check or "candidate" in collection.names


def _last_function(candidate: str) -> str:
    """Name the last function of the candidate, else its last class; one that replaces a builtin only if need be."""
    tree = parse_or_none(candidate)
    body = tree.body if tree else []
    names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    likely = [name for name in names if not hasattr(builtins, name) and name not in ("main", "check")]
    classes = [node.name for node in body if isinstance(node, ast.ClassDef)]
    return ([""] + classes + names + [name for name in likely if not name.startswith(("_", "test_"))])[-1]


def conclude(ending: Ending, collection: Collection, limits: Limits, layers: tuple[str, ...]) -> Verdict:
    """Draw the conclusion from how a pair of processes ended."""
    state, message = _conclusion(ending, collection, limits)
    reported = (ending.verdict or {}).get("results", [])
    results = tuple(
        TestResult(
            name=test.name, **{key: result[key] for key in ("passed", "got", "wanted", "message") if key in result}
        )
        for test, result in zip(collection.tests, reported, strict=False)
    )
    return Verdict(
        state=state,
        results=results,
        collected=len(collection.tests),
        message=message,
        output=ending.output,
        layers=layers,
        wall_s=ending.wall_s,
    )


def _conclusion(ending: Ending, collection: Collection, limits: Limits) -> tuple[Any, str]:
    during = ""
    if ending.under_way is not None:
        during = f" during `{collection.tests[ending.under_way].name}`"
    if ending.wall_timeout:
        used = sum(ending.cpu_s)
        return "timeout", f"no end after {limits.wall_s:g} s of wall time{during} ({used:.1f} s of them CPU time)"
    if ending.flooded:
        return "crashed", f"killed{during}: {ending.flooded}"
    if ending.verdict is not None and ending.verdict["state"] == "ran":
        return "ran", ""
    if any(_out_of_cpu(code, used, limits) for code, used in zip(ending.exit_codes, ending.cpu_s, strict=True)):
        return "timeout", f"more than {limits.cpu_s:g} s of CPU time used{during}"
    if not ending.started:
        return "unavailable", f"the process for the tests did not start{_why_not_started(ending, limits)}"
    if ending.verdict is None:
        why = ending.tester_output.strip().splitlines()[-1:] or [f"exit code {ending.exit_codes[1]}"]
        return "crashed", f"the process with the tests ended without a verdict{during}: {why[0]}"
    state, message = ending.verdict["state"], ending.verdict["message"]
    if state == "unavailable":
        return state, f"{message}: {ending.output.strip()[-500:]}"
    if state == "crashed" or (state == "candidate_failed" and ending.exit_codes[0] not in (0, None)):
        message = f"{message}{during} ({_cause(ending.exit_codes[0])})"
    return state, message


def _why_not_started(ending: Ending, limits: Limits) -> str:
    hint = f"; {', '.join(limits.packages)} may need more than {limits.memory_mb} MiB" if limits.packages else ""
    return f" ({_cause(ending.exit_codes[1])}): {ending.tester_output.strip()[-500:]}{hint}"


def _out_of_cpu(code: int | None, used: float, limits: Limits) -> bool:
    return code == -signal.SIGXCPU or (code == -signal.SIGKILL and used >= limits.cpu_s)


def _cause(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}"
