"""What one judgement costs: HumanEval's own solutions, judged in several ways in one run.

    uv run python benchmarks/judge_latency.py [--limit N] [--rounds N]

- interpreter: starting one, and nothing else
- plain: `subprocess` with the solution and its tests as one program, believed by its exit code
- forked: as human-eval does, a child by `multiprocessing` that executes the program with an alarm, and tells by a queue
- forked, per input: as evalplus does, likewise, with each test input called and compared apart (here: each assert)
- cold, warm: our two locked processes, started afresh and forked

CPU time is the mean of all processes of a way; unlike the clock, it hardly depends on what else the machine does.
The forked ways share the parent's memory, files and network with the code they run; they are here for their cost alone.
"""

import argparse
import ast
import asyncio
import gzip
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reflexion.sandbox import Limits, available_layers
from reflexion.sandbox.collect import collect
from reflexion.sandbox.fork_server import own_fork_server
from reflexion.sandbox.judging import conclude, judge
from reflexion.sandbox.pair import run_pair

DATA = Path(__file__).parent.parent / "tests" / "data" / "HumanEval.jsonl.gz"
LIMITS = Limits(wall_s=20, cpu_s=20)
FORK = multiprocessing.get_context("fork")


def interpreter(problem: dict[str, Any]) -> bool:
    return subprocess.run([sys.executable, "-I", "-c", "pass"], check=True).returncode == 0


def plain(problem: dict[str, Any]) -> bool:
    program = f"{problem['code']}\n{problem['test']}\ncheck({problem['entry_point']})\n"
    return subprocess.run([sys.executable, "-I", "-"], input=program.encode(), check=False, timeout=20).returncode == 0


def _told_by_child(work: Callable[[], bool]) -> bool:
    def child(said: Any) -> None:
        signal.alarm(20)
        try:
            said.put(work())
        except BaseException:  # noqa: BLE001 - whatever the code raises
            said.put(False)

    said = FORK.Queue()
    started = FORK.Process(target=child, args=(said,))
    started.start()
    told: bool = said.get(timeout=30)
    started.join()
    return told


def forked(problem: dict[str, Any]) -> bool:
    def work() -> bool:
        exec(f"{problem['code']}\n{problem['test']}\ncheck({problem['entry_point']})\n", {})
        return True

    return _told_by_child(work)


def forked_per_input(problem: dict[str, Any]) -> bool:
    def work() -> bool:
        names: dict[str, Any] = {}
        exec(problem["code"], names)
        names["candidate"] = names[problem["entry_point"]]
        check = next(node for node in ast.parse(problem["test"]).body if isinstance(node, ast.FunctionDef))
        for statement in check.body:
            signal.setitimer(signal.ITIMER_REAL, 20)
            exec(compile(ast.Module([statement], []), "tests", "exec"), names)
        return True

    return _told_by_child(work)


def cold(problem: dict[str, Any]) -> bool:
    collection = collect(problem["test"], problem["entry_point"])
    layers = available_layers()
    ending = run_pair(
        problem["code"],
        problem["test"],
        problem["entry_point"],
        limits=LIMITS,
        layers=layers,
        stop=threading.Event(),
        warm=False,
    )
    return conclude(ending, collection, LIMITS, layers).passed


def warm(problem: dict[str, Any]) -> bool:
    return asyncio.run(judge(problem["code"], problem["test"], entry=problem["entry_point"], limits=LIMITS)).passed


def cpu_s() -> float:
    """Seconds of CPU time so far, of this process, its fork server, and all of theirs that have ended."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(usage.ru_utime + usage.ru_stime for usage in own)
    server = own_fork_server()
    if server is not None:
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used


WAYS = {
    "interpreter": interpreter,
    "plain": plain,
    "forked": forked,
    "forked, per input": forked_per_input,
    "cold": cold,
    "warm": warm,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=None, help="only the first N tasks")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        problems = [json.loads(line) for line in file][: options.limit]
    for problem in problems:
        problem["code"] = problem["prompt"] + problem["canonical_solution"]
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    cpu = dict.fromkeys(WAYS, 0.0)
    wrong = 0
    for way in WAYS.values():
        way(problems[0])  # caches, layers and the fork server are there from the second judgement on
    for problem in problems * options.rounds:
        for name, way in WAYS.items():  # one beside the other, so that the machine's load falls on all alike
            began, used = time.perf_counter(), cpu_s()
            passed = way(problem)
            seconds[name].append(time.perf_counter() - began)
            cpu[name] += cpu_s() - used
            if not passed:
                wrong += 1
                print(f"{name} fails {problem['task_id']}")
    print(f"{len(problems)} solutions, {options.rounds} round(s), milliseconds\n")
    print("| way | p50 | p95 | p50 / plain | CPU time | CPU time above the interpreter's |")
    print("|---|---|---|---|---|---|")
    count, middle = len(seconds["plain"]), {name: sorted(times)[len(times) // 2] for name, times in seconds.items()}
    for name, times in seconds.items():
        clock = f"{middle[name] * 1e3:.1f} | {sorted(times)[int(count * 0.95)] * 1e3:.1f}"
        spent = f"{cpu[name] / count * 1e3:.1f} | {(cpu[name] - cpu['interpreter']) / count * 1e3:.1f}"
        print(f"| {name} | {clock} | {middle[name] / middle['plain']:.2f} | {spent} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
