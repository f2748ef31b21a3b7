"""Which attacks do the sandbox's layers stop? A table of attacks by layers, as Markdown. Linux only.

    uv run python benchmarks/sandbox_attacks.py [--column NAME ...] [--only WORD]

Each cell runs one attack in a world of its own (`sandbox_world.py`) and looks from outside at what came of it: a wrong
solution that passes, a word that it could only print on success, a changed file, a killed process, a connection, a
process left behind, a second more than the limit. The first column is what many harnesses do: code and tests in one
process, judged by its exit code; it runs as a child with hard limits of its own. A dash: not run, because nothing in
that column would keep the attack from harming the machine.
"""

import argparse
import ctypes
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox_cheats import CHEATS
from sandbox_escapes import ESCAPES, Escape
from sandbox_world import ESCAPED, MOST_OUTPUT, World

from reflexion.sandbox import Limits, available_layers
from reflexion.sandbox.collect import collect
from reflexion.sandbox.judging import conclude
from reflexion.sandbox.pair import run_pair

TESTS = "assert volume_cube(3) == 27\nassert volume_cube(2) == 8\nassert volume_cube(5) == 125\n"
PATIENT_S, SHORT_S, LATE_S = 20.0, 2.0, 1.0
HARD_LIMITS = """
import resource
for which, most in ((resource.RLIMIT_AS, 8 << 30), (resource.RLIMIT_FSIZE, 256 << 20), (resource.RLIMIT_CPU, 30)):
    resource.setrlimit(which, (most, most))
"""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Run:
    passed: bool
    output: str
    seconds: float


def plainly(code: str, limits: Limits) -> Run:
    """Run code and tests in one process and believe its exit code."""

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as outer, tempfile.TemporaryFile() as output:
        folder = Path(outer) / "run"
        folder.mkdir()
        started = subprocess.Popen(
            [sys.executable, "-I", "-c", f"{HARD_LIMITS}\n{code}\n{TESTS}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            passed = started.wait(limits.wall_s) == 0
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
            passed = False
        output.seek(0)
        text = output.read(MOST_OUTPUT + 1).decode("utf-8", "replace")
    return Run(passed, text, time.monotonic() - began)


def under(layers: tuple[str, ...], *, warm: bool = False) -> Callable[[str, Limits], Run]:
    """Judge in two processes under some of the layers."""

    def run(code: str, limits: Limits) -> Run:
        began, collection = time.monotonic(), collect(TESTS, "volume_cube")
        ending = run_pair(code, TESTS, "volume_cube", limits=limits, layers=layers, stop=threading.Event(), warm=warm)
        verdict = conclude(ending, collection, limits, layers)
        if verdict.state == "unavailable":
            raise RuntimeError(verdict.message)
        return Run(verdict.passed, verdict.output, time.monotonic() - began)

    return run


def columns() -> dict[str, tuple[Callable[[str, Limits], Run], frozenset[str]]]:
    """The ways to run, each with what it has to keep attacks from harming the machine."""
    full = available_layers()
    without = {
        name: tuple(layer for layer in full if layer not in name.split()) for name in ("landlock", "seccomp network")
    }
    limited = tuple(layer for layer in full if layer not in ["landlock", "capabilities", "seccomp", "network"])
    watching, both = frozenset(("watching",)), frozenset(("watching", "seccomp"))
    return {
        "one process": (plainly, frozenset()),
        "limits only": (under(limited), watching),
        "no Landlock": (under(without["landlock"]), both),
        "no seccomp": (under(without["seccomp network"]), watching),
        "all, cold": (under(full), both),
        "all": (under(full, warm=True), both),
    }


def outcome(run: Callable[[str, Limits], Run], attack: Escape | str) -> str:
    """Give what came of one attack: `stopped`, or what got through."""
    endless = isinstance(attack, Escape) and attack.endless
    wall_s = SHORT_S if endless else PATIENT_S
    limits = Limits(wall_s=wall_s, cpu_s=PATIENT_S)
    with World() as world:
        os.environ["CANARY"] = world.token
        ended = run(world.source(attack.code) if isinstance(attack, Escape) else attack, limits)
        harm = world.harm()
    if ended.passed:
        return "**passes**"
    if harm or ESCAPED in ended.output or len(ended.output) > MOST_OUTPUT:
        return "**escapes**"
    if endless and ended.seconds > wall_s + LATE_S:
        return "**late**"
    return "stopped"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--column", action="append", help="only this one; may be repeated")
    parser.add_argument("--only", default="", help="only attacks with this word in their name")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that what detaches itself is found
    chosen = {name: column for name, column in columns().items() if name in (options.column or columns())}
    attacks = {**CHEATS, **ESCAPES}
    print("| attack |", " | ".join(chosen), "|")
    print("|---|" + "---|" * len(chosen))
    through = 0
    for name, attack in attacks.items():
        if options.only not in name:
            continue
        cells = []
        for column, (run, has) in chosen.items():
            fits = isinstance(attack, str) or (
                attack.needs in (has | {"nothing"}) and attack.machine in ("", platform.machine())
            )
            cells.append(outcome(run, attack) if fits else "–")
            through += column.startswith("all") and cells[-1].startswith("**")
        print(f"| {name} |", " | ".join(cells), "|", flush=True)
    return 1 if through else 0


if __name__ == "__main__":
    sys.exit(main())
