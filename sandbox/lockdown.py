"""What a sandboxed process does to itself before it runs a line that nobody trusts; runs inside the child.

Every step is irreversible for the process and its threads. Linux: Landlock (no file outside its own folder, Linux
5.13 and later), no capabilities, seccomp. Everywhere: resource limits.
"""

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Callable, Sequence

from reflexion.sandbox.syscalls import AUDIT_ARCH, seccomp_program

with contextlib.suppress(ImportError):  # the parent reads `LAYERS` on Windows too, where no child can be started
    import resource

LAYERS = ("memory", "cpu", "files", "processes", "landlock", "capabilities", "seccomp", "network")
"""All that can be put on from inside, in the order in which it is put on."""

_READ = 1 << 2 | 1 << 3
_EXECUTE, _MAKE_DEVICES_AND_SOCKETS, _REFER, _IOCTL_DEVICE = (
    1 << 0,
    1 << 6 | 1 << 9 | 1 << 10 | 1 << 11,
    1 << 13,
    1 << 15,
)
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38
_M_ARENA_MAX = -8
_OPEN_FILES = 64


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _limit_memory(limits: dict[str, int]) -> None:
    _limit(resource.RLIMIT_AS, limits["memory_mb"] << 20)
    with contextlib.suppress(OSError, AttributeError):
        # glibc reserves 64 MB of address space for each thread's own arena: a few threads would be out of memory
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def _limit_cpu(limits: dict[str, int]) -> None:
    # Soft before hard: SIGXCPU ends the process unless it is ignored, and one second later SIGKILL does.
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))


def _limit_files(limits: dict[str, int]) -> None:
    _limit(resource.RLIMIT_FSIZE, limits["file_mb"] << 20)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_CORE, 0)


def _limit_processes(limits: dict[str, int]) -> None:
    _limit(resource.RLIMIT_NPROC, limits["tasks"])


def _landlock_version(libc: ctypes.CDLL) -> int:
    return int(libc.syscall(_SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def _library_folders() -> list[str]:
    return [
        *(os.path.join(prefix, "lib") for prefix in {sys.base_prefix, sys.base_exec_prefix}),  # noqa: PTH118
        *("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo"),
    ]


def _landlock(folder: str, readable: Sequence[str]) -> None:
    """Leave only libraries to read and the process's own folder to write."""
    libc = _libc()
    version = _checked(_landlock_version(libc), "Landlock")
    handled = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, 1 << 14), (5, _IOCTL_DEVICE)):
        handled |= right if version >= since else 0
    tcp, signals_and_abstract_sockets = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = struct.pack("QQQ", handled, tcp, signals_and_abstract_sockets)[:size]
    ruleset = _checked(
        libc.syscall(_SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)), "Landlock"
    )
    own = handled & ~(_EXECUTE | _MAKE_DEVICES_AND_SOCKETS | _REFER | _IOCTL_DEVICE)
    rules = [
        (folder, own),
        *((library, _READ) for library in (*_library_folders(), *readable)),
        *((path, 1 << 2) for path in ("/dev/urandom", "/dev/zero", "/etc/ld.so.cache")),
        ("/dev/null", 1 << 1 | 1 << 2),
    ]
    for path, rights in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = struct.pack("=Qi", rights, descriptor)
        added = libc.syscall(_SYS_LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(descriptor)
        _checked(added, f"Landlock rule for {path}")
    _checked(libc.syscall(_SYS_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "Landlock")
    os.close(ruleset)


def _drop_capabilities() -> None:
    libc = _libc()
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    version_3, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _checked(libc.capset(version_3, nothing), "dropping capabilities")


def _seccomp() -> None:
    machine = os.uname().machine
    if machine not in AUDIT_ARCH or sys.maxsize < 1 << 32:
        raise OSError(f"no system call numbers for {machine}")
    program = seccomp_program(machine, os.getpid())
    filters = _FilterProgram(len(program) // 8, program)
    _checked(_libc().prctl(_PR_SET_SECCOMP, 2, ctypes.byref(filters), 0, 0), "seccomp")


def lock(layers: Sequence[str], folder: str, limits: dict[str, int], readable: Sequence[str] = ()) -> None:
    """Put the named layers on.

    Args:
        layers: some of `LAYERS`.
        folder: the one folder that stays writable.
        readable: folders that stay readable, beside the interpreter's own.
        limits: `memory_mb` and `file_mb` (MiB), `cpu_s` (seconds), `tasks` (processes and threads of this user).

    Raises:
        OSError: a layer cannot be put on; nothing untrusted may run then.
    """
    if sys.platform == "linux":
        libc = _libc()
        _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    steps: dict[str, Callable[[], None]] = {
        "memory": lambda: _limit_memory(limits),
        "cpu": lambda: _limit_cpu(limits),
        "files": lambda: _limit_files(limits),
        # Without fork there is nothing to count, and the limit counts all that this user runs, not this process.
        "processes": lambda: None if "seccomp" in layers else _limit_processes(limits),
        "landlock": lambda: _landlock(folder, readable),
        "capabilities": _drop_capabilities,
        "seccomp": _seccomp,
        "network": lambda: None,  # what seccomp and Landlock already do
    }
    for layer in LAYERS:
        if layer in layers:
            steps[layer]()


def usable_layers(folder: str, limits: dict[str, int]) -> list[str]:
    """Put every layer on that this platform has, and name them.

    Arguments as for `lock`.
    """
    usable: list[str] = []
    for layer in LAYERS:
        if layer == "network":
            if "seccomp" in usable:
                usable.append(layer)
            continue
        try:
            lock([layer], folder, limits)
        except (OSError, AttributeError, ValueError):
            continue
        usable.append(layer)
    return usable
