"""The parts that can be tried without a process: the seccomp program, kept output, the count of a folder's content."""

import contextlib
import gc
import os
import re
import struct
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.sandbox import parse, syscalls
from reflexion.sandbox.capture import HeadAndTail
from reflexion.sandbox.disk import folder_of_a_run, holds_more_than

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
PID = 4242
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def answer(program: bytes, machine: str, number: int, *args: int) -> int:
    """Run a classic BPF program over one system call, as the kernel does."""
    data = struct.pack("<IIQ6Q", number, syscalls.AUDIT_ARCH[machine], 0, *(*args, *[0] * 6)[:6])
    instructions = list(struct.iter_unpack("HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, when_true, when_false, operand = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                at += when_true if accumulator == operand else when_false
            case 0x45:
                at += when_true if accumulator & operand else when_false
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def number(machine: str, name: str) -> int:
    numbers = {**syscalls._FREE, **syscalls._CHECKED}[name]
    return numbers[list(syscalls.AUDIT_ARCH).index(machine)]


@pytest.mark.parametrize("machine", syscalls.AUDIT_ARCH)
@pytest.mark.parametrize(
    ("name", "args", "wanted"),
    [
        ("read", (), ALLOW),
        ("exit_group", (), ALLOW),
        ("clone", (0x00010000 | 0x100,), ALLOW),
        ("clone", (17,), EPERM),
        ("clone3", (), ENOSYS),
        ("kill", (PID, 9), ALLOW),
        ("kill", (1, 9), EPERM),
        ("kill", (2**32 - 1, 9), EPERM),
        ("tgkill", (PID, PID, 9), ALLOW),
        ("tgkill", (1, 1, 9), EPERM),
        ("prlimit64", (0, 7), ALLOW),
        ("prlimit64", (1, 7), EPERM),
        ("prctl", (15,), ALLOW),
        ("prctl", (38,), EPERM),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), EPERM),
        ("fcntl", (3, 1), ALLOW),
        ("fcntl", (3, 8), EPERM),
        ("fcntl", (3, 10), EPERM),
        ("fcntl", (3, 15), EPERM),
        ("fcntl", (3, 1024), EPERM),
        ("fcntl", (3, 1030), ALLOW),
        ("fcntl", (3, 1031), EPERM),
        ("socketpair", (1, 1 | 0x80000), ALLOW),
        ("socketpair", (1, 2), EPERM),
        ("socketpair", (2, 1), EPERM),
    ],
)
def test_seccomp_lets_through_what_is_harmless(machine, name, args, wanted):
    program = syscalls.seccomp_program(machine, PID)
    assert len(program) // 8 <= 4096
    assert answer(program, machine, number(machine, name), *args) == wanted


@pytest.mark.parametrize("machine", syscalls.AUDIT_ARCH)
def test_seccomp_refuses_every_other_number(machine):
    program = syscalls.seccomp_program(machine, PID)
    column = list(syscalls.AUDIT_ARCH).index(machine)
    named = {numbers[column] for numbers in (*syscalls._FREE.values(), *syscalls._CHECKED.values())}
    others = set(range(600)) - named
    assert {answer(program, machine, other) for other in others} == {EPERM}
    assert {answer(program, machine, 0x40000000 + some) for some in range(0, 600, 25)} == {EPERM}


def test_seccomp_kills_calls_of_another_architecture():
    assert answer(syscalls.seccomp_program("x86_64", PID), "aarch64", 0) == KILL


@pytest.mark.parametrize("machine", syscalls.AUDIT_ARCH)
def test_the_numbers_are_those_of_the_kernel_headers(machine):
    if not HEADERS[machine].exists():
        pytest.skip("no kernel headers")
    defined = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", HEADERS[machine].read_text(), re.MULTILINE)
    numbers = {name: int(value) for name, value in defined}
    if machine == "aarch64":
        numbers["newfstatat"] = numbers["fstatat"]
    ours = {name: number(machine, name) for name in (*syscalls._FREE, *syscalls._CHECKED)}
    assert {name: value for name, value in ours.items() if value is not None} == {
        name: numbers[name] for name, value in ours.items() if value is not None
    }


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(min_value=2, max_value=60))
def test_kept_output_is_the_head_and_the_tail(chunks, limit):
    kept = HeadAndTail(limit)
    for chunk in chunks:
        kept.feed(chunk)
    data, text = b"".join(chunks), kept.text()
    assert kept.seen == len(data)
    if len(data) <= limit // 2 * 2:
        assert text == data.decode("utf-8", "replace")
    else:
        half = limit // 2
        assert text.startswith(data[:half].decode("utf-8", "replace"))
        assert text.endswith(data[-half:].decode("utf-8", "replace"))
        assert f"{len(data) - 2 * half:,} bytes left out" in text
    assert text.encode("utf-8").decode("utf-8") == text


def test_a_folder_of_a_run_goes_with_all_below_it_and_nothing_that_its_links_lead_to(tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with folder_of_a_run() as folder:
        for name in ("a", "b"):
            (Path(folder) / name / "below").mkdir(parents=True)
            (Path(folder) / name / "below" / "file").touch()
            (Path(folder) / name / "link").symlink_to(outside)
        (Path(folder) / "b" / "below").chmod(0o500)
        (Path(folder) / "a").chmod(0)
        with contextlib.chdir(folder):
            for _ in range(1200):
                Path("d").mkdir()
                os.chdir("d")
    assert [entry.name for entry in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()


def test_a_folder_is_counted_with_all_below_it(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert holds_more_than(str(tmp_path), 50_000)
    assert not holds_more_than(str(tmp_path), 10_000_000)
    assert not holds_more_than(str(tmp_path / "missing"), 1)


@pytest.fixture
def switching_threads():
    """Let threads take turns while a tree is built: at each of many collections of garbage."""

    def switch(phase, info):
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(switch)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(switch)


def test_threads_that_parse_at_once_do_not_disturb_each_other(switching_threads):
    source = "x = " + "(1 + " * 60 + "1" + ")" * 60 + "\n" + "def f(a): return [a for a in range(3) if a]\n" * 30
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(parse, [source] * 400))
    assert {len(tree.body) for tree in trees} == {31}
    with pytest.raises(SyntaxError):
        parse("def f(:")
