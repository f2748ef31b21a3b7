"""The system calls a locked process may make, and the seccomp program that lets only those through.

An allow-list: what is not named here answers EPERM, so a call the kernel gains tomorrow is refused too. Not among
them: fork, exec, sockets, other processes' memory, signals and limits, and everything that changes the owner, mode or
attributes of files, which Landlock does not govern. Numbers are those of the Linux headers (`asm/unistd_64.h` for
x86-64, `asm-generic/unistd.h` for aarch64); None where the architecture has no such call.
"""

import struct
from collections.abc import Iterator

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_FREE: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "futex": (202, 98),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "brk": (12, 214),
    "madvise": (28, 233),
    "msync": (26, 227),
    "fstat": (5, 80),
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "lseek": (8, 62),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "open": (2, None),
    "openat": (257, 56),
    "creat": (85, None),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "umask": (95, 166),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "link": (86, None),
    "linkat": (265, 37),
    "ftruncate": (77, 46),
    "truncate": (76, 45),
    "fallocate": (285, 47),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "flock": (73, 32),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "fadvise64": (221, 223),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "close_range": (436, 436),
    "select": (23, None),
    "pselect6": (270, 72),
    "poll": (7, None),
    "ppoll": (271, 73),
    "epoll_create": (213, None),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441),
    "eventfd": (284, None),
    "eventfd2": (290, 19),
    "timerfd_create": (283, 85),
    "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87),
    "recvfrom": (45, 207),
    "sendto": (44, 206),
    "recvmsg": (47, 212),
    "sendmsg": (46, 211),
    "shutdown": (48, 210),
    "getsockopt": (55, 209),
    "setsockopt": (54, 208),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "rt_sigpending": (127, 136),
    "sigaltstack": (131, 132),
    "pause": (34, None),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "alarm": (37, None),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getsid": (124, 156),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "membarrier": (324, 283),
    "arch_prctl": (158, None),
    "restart_syscall": (219, 128),
    "getrandom": (318, 278),
    "exit": (60, 93),
    "exit_group": (231, 94),
}

_CHECKED: dict[str, tuple[int, int]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prctl": (157, 167),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "socketpair": (53, 199),
    "prlimit64": (302, 261),
}
"""Calls that are let through for some arguments only."""

_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_LOAD, _EQUAL, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06

_CLONE_THREAD = 0x00010000
_TERMINAL_AND_PIPE_QUERIES = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: what CPython asks of its own descriptors."""
_FCNTL = (*range(8), 1030)
"""From F_DUPFD to F_SETLKW, and F_DUPFD_CLOEXEC. Others make the kernel signal another process (F_SETOWN), have whoever
opens a library wait (F_SETLEASE), leave a mark on a file (F_SET_RW_HINT) or take much of its memory (F_SETPIPE_SZ)."""
_THREAD_NAME = (15, 16)
"""PR_SET_NAME, PR_GET_NAME."""
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF

_Instruction = tuple[int, int, int, int]


def _argument(index: int) -> _Instruction:
    """Load the low half of an argument: all that is checked here are ints, of which the kernel reads no more."""
    return (_LOAD, 0, 0, 16 + 8 * index)


def _one_of(index: int, values: tuple[int, ...], *, then: int, otherwise: int) -> list[_Instruction]:
    matches = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [_argument(index), *matches, (_RETURN, 0, 0, otherwise), (_RETURN, 0, 0, then)]


def _checks(pid: int) -> dict[str, list[_Instruction]]:
    own = {"then": _ALLOW, "otherwise": _EPERM}
    stream_pair = _one_of(1, (_SOCK_STREAM,), **own)
    stream_pair.insert(1, (_AND, 0, 0, _SOCK_TYPE_MASK))
    return {
        "clone": [_argument(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)],
        "clone3": [(_RETURN, 0, 0, _ENOSYS)],  # its flags lie in memory; the C library falls back to clone
        "kill": _one_of(0, (pid,), **own),
        "tgkill": _one_of(0, (pid,), **own),
        "prlimit64": _one_of(0, (0, pid), **own),
        "prctl": _one_of(0, _THREAD_NAME, **own),
        "ioctl": _one_of(1, _TERMINAL_AND_PIPE_QUERIES, **own),
        "fcntl": _one_of(1, _FCNTL, **own),
        # asyncio wakes its loop through a pair; a datagram pair could send to any named socket
        "socketpair": [_argument(0), (_EQUAL, 1, 0, _AF_UNIX), (_RETURN, 0, 0, _EPERM), *stream_pair],
    }


def _instructions(machine: str, pid: int) -> Iterator[_Instruction]:
    column = list(AUDIT_ARCH).index(machine)
    yield (_LOAD, 0, 0, 4)
    yield (_EQUAL, 1, 0, AUDIT_ARCH[machine])
    yield (_RETURN, 0, 0, _KILL)
    yield (_LOAD, 0, 0, 0)
    for numbers in _FREE.values():
        number = numbers[column]
        if number is not None:
            yield (_EQUAL, 0, 1, number)
            yield (_RETURN, 0, 0, _ALLOW)
    for name, check in _checks(pid).items():
        yield (_EQUAL, 0, len(check), _CHECKED[name][column])
        yield from check
    yield (_RETURN, 0, 0, _EPERM)


def seccomp_program(machine: str, pid: int) -> bytes:
    """Build the classic BPF program for one process.

    Args:
        machine: as `os.uname` names it; one of `AUDIT_ARCH`.
        pid: of the process that is to run under it, the only one it may signal or limit.
    """
    return b"".join(struct.pack("HBBI", *instruction) for instruction in _instructions(machine, pid))
