"""What code that means harm finds in the sandbox; looked at from outside, after the run."""

import resource

import pytest
from leftovers import processes_in

from reflexion.sandbox import Limits, Verdict, available_layers, judge

PATIENT = Limits(wall_s=40, cpu_s=20)
"""Limits that no slow machine reaches."""

SPIN = "threading.Thread(target=exec, args=('while True: pass',)).start()"


async def attack(code: str, tests: str = "assert attack() is not None", limits: Limits = PATIENT) -> Verdict:
    body = "\n    ".join(code.strip().splitlines())
    return await judge(f"def attack():\n    {body}\n", tests, limits=limits)


def failures(verdict: Verdict) -> list[str]:
    return [f"{verdict.state} {verdict.message}"] * (verdict.state != "ran") + [
        f"{result.name}: {result.got} {result.message}" for result in verdict.results if not result.passed
    ]


async def test_no_secret_of_the_environment_is_visible(monkeypatch):
    monkeypatch.setenv("REFLEXION_API_KEY", "sk-" + "not-for-candidates")
    verdict = await attack("""
import os
seen = [repr(dict(os.environ))]
for process in ("self", os.getppid(), 1):
    for file in ("environ", "cmdline", "mem"):
        try:
            seen.append(open(f"/proc/{process}/{file}", "rb").read(100_000).decode("latin-1"))
        except OSError as error:
            seen.append(type(error).__name__)
print("looked", seen)
return len(seen)""")
    assert failures(verdict) == []
    assert "looked" in verdict.output
    assert "not-for-candidates" not in verdict.output


async def test_its_own_folder_is_writable_and_gone_afterwards(box):
    verdict = await attack('open("note", "w").write("x")\nreturn open("note").read()', "assert attack() == 'x'")
    assert failures(verdict) == []
    assert list(box.iterdir()) == []


@pytest.mark.parametrize(
    "start",
    [
        'subprocess.Popen(["sleep", "600"])',
        'subprocess.Popen(["setsid", "sleep", "600"])',
        'os.system("sleep 600 &")',
        'os.posix_spawn("/bin/sleep", ["sleep", "600"], {})',
        'multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()',
        '[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "Popen"][0](["sleep", "600"])',
    ],
)
async def test_no_process_is_left_behind(box, start):
    verdict = await attack(f"""
import multiprocessing, os, subprocess, time
try:
    {start}
except OSError:
    pass
return 1""")
    assert verdict.state in {"ran", "crashed"}
    assert processes_in(box) == []


@pytest.mark.parametrize("size", ["bytearray(4 << 30)", '"a" * 10**11', "[0] * 10**10", "list(range(10**9))"])
async def test_a_memory_bomb_is_a_memory_error(size):
    tests = "import pytest\ndef test_bomb():\n    with pytest.raises(MemoryError):\n        attack()"
    assert failures(await attack(f"return len({size})", tests)) == []


async def test_an_endless_flood_of_output_is_cut_off():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = Limits(wall_s=40, cpu_s=30, output_bytes=10_000)
    verdict = await attack('while True: print("x" * 10_000)', limits=limits)
    assert verdict.state == "crashed"
    assert "printed" in verdict.message
    assert 0 < len(verdict.output) < 11_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


async def test_head_and_tail_of_long_output_are_kept():
    limits = Limits(wall_s=40, cpu_s=30, output_bytes=1_000)
    verdict = await attack('print("HEAD"); print("x" * 100_000); print("TAIL")\nreturn 1', limits=limits)
    assert failures(verdict) == []
    assert verdict.output.startswith("HEAD")
    assert verdict.output.rstrip().endswith("TAIL")
    assert len(verdict.output) < 1_100


async def test_binary_output_becomes_valid_text():
    verdict = await attack(r'import os; os.write(1, b"\xff\xfe\x00ok\xf0\x9f"); return 1')
    assert failures(verdict) == []
    assert "ok" in verdict.output
    assert verdict.output.encode("utf-8")


async def test_input_meets_the_end_of_the_file():
    tests = "import pytest\ndef test_input():\n    with pytest.raises(EOFError):\n        attack()"
    assert failures(await attack("return input()", tests)) == []


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(10**6)",
    ],
    ids=["loop", "sleep"],
)
async def test_what_never_ends_is_killed_at_the_wall_limit(box, code):
    verdict = await attack(code, limits=Limits(wall_s=3, cpu_s=30))
    assert (verdict.state, verdict.passed) == ("timeout", False)
    assert "wall time" in verdict.message
    assert "attack()" in verdict.message
    assert verdict.wall_s < 60
    assert processes_in(box) == []


async def test_cpu_time_is_limited_apart_from_wall_time_even_if_the_signal_is_ignored():
    code = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    verdict = await attack(code, limits=Limits(wall_s=60, cpu_s=1))
    assert verdict.state == "timeout"
    assert "CPU time" in verdict.message


async def test_threads_left_spinning_do_not_keep_a_right_answer_waiting(box):
    verdict = await attack(f"import threading\n{SPIN}\nreturn 1")
    assert failures(verdict) == []
    assert processes_in(box) == []


async def test_open_files_are_limited():
    verdict = await attack(
        """
kept = []
try:
    for n in range(10_000): kept.append(open(f"f{n}", "w"))
except OSError: pass
return len(kept)""",
        "assert 0 < attack() < 100",
    )
    assert failures(verdict) == []


async def test_a_huge_file_is_stopped(box):
    verdict = await attack(
        """
with open("huge", "wb", buffering=0) as file:
    try:
        for _ in range(5_000): file.write(bytes(1 << 20))
    except OSError: pass
    return file.tell()""",
        "assert attack() <= 16 << 20",
    )
    assert failures(verdict) == []
    assert list(box.iterdir()) == []


async def test_many_files_are_stopped(box):
    code = 'for n in range(10**6): open(f"f{n}", "wb").write(bytes(1 << 20))'
    verdict = await attack(code)
    assert (verdict.state, verdict.passed) == ("crashed", False)
    assert "folder" in verdict.message
    assert list(box.iterdir()) == []


async def test_the_layers_in_force_are_named():
    verdict = await attack("return 1")
    assert verdict.layers == available_layers()
    assert {"process", "environment", "cpu", "files"} <= set(verdict.layers)
