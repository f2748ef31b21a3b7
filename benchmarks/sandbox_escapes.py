"""Code that tries to reach out of its process, for the tests and `sandbox_attacks.py`.

Each is the body of a module that a model might have written. It finds in `W` where things are (see
`sandbox_world.World`), tells with `attempt` what it got, and is harmless where nothing stops it: it touches what the
world was built for, and takes no more than can be spared.
"""

from dataclasses import dataclass

PRELUDE = """
import ctypes, os, sys
def attempt(what, action):
    try:
        got = action()
    except BaseException as error:
        print("refused", what, type(error).__name__, flush=True)
    else:
        print("ESCAPED", what, str(got)[:100], flush=True)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *args):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def volume_cube(l): return 0
"""


@dataclass(frozen=True)
class Escape:
    code: str
    endless: bool = False
    """It is to be ended at the wall limit."""

    needs: str = "nothing"
    """What keeps it from doing harm: `seccomp`, `watching` (a parent that looks at the folder) or `nothing`."""

    machine: str = ""
    """The only architecture whose numbers it knows; empty for any."""


def kernel(*calls: str) -> Escape:
    """An escape by system calls, each as `name: number, arguments` for x86-64."""
    named = [one.split(": ", 1) for one in calls]
    return Escape("\n".join(f"attempt({name!r}, lambda: call({text}))" for name, text in named), machine="x86_64")


ESCAPES = {
    "environment of itself, its parent and others": Escape("""
def environ(path):
    text = open(path, "rb").read()
    assert W["token"].encode() in text
    return "a secret"
for process in ("self", os.getppid(), W["victim"]):
    attempt(f"environ of {process}", lambda: environ(f"/proc/{process}/environ"))
attempt("its own", lambda: os.environ["CANARY"])"""),
    "a file outside": Escape("""
attempt("read", lambda: open(W["canary"]).read())
attempt("list", lambda: os.listdir(W["folder"]))
attempt("users", lambda: open("/etc/passwd").read(9))
attempt("home", lambda: os.listdir(os.path.expanduser("~")))
attempt("processes", lambda: os.listdir("/proc"))"""),
    "a file outside by links": Escape("""
os.symlink(W["canary"], "door")
attempt("symbolic", lambda: open("door").read())
os.symlink("/", "root")
attempt("folder", lambda: open("root" + W["canary"]).read())
attempt("hard", lambda: (os.link(W["canary"], "mine"), open("mine").read()))
attempt("descriptor", lambda: open("/proc/self/cwd/../../" + W["canary"]).read())"""),
    "changing a file outside": Escape("""
attempt("write", lambda: open(W["canary"], "a").write("x"))
attempt("truncate", lambda: os.truncate(W["canary"], 1))
attempt("mode", lambda: os.chmod(W["canary"], 0o777))
attempt("time", lambda: os.utime(W["canary"], (0, 0)))
attempt("attribute", lambda: os.setxattr(W["canary"], "user.x", b"x"))
attempt("create", lambda: open(W["folder"] + "/new", "w"))
attempt("rename", lambda: os.rename(W["canary"], "mine"))
attempt("owner", lambda: os.chown(W["canary"], 1, 1))
attempt("remove", lambda: os.remove(W["canary"]))
import shutil
shutil.rmtree(W["folder"], ignore_errors=True)"""),
    "leaving files for the next run": Escape("""
import tempfile
for folder in (W["folder"], "..", "/dev/shm"):
    for name in ("sitecustomize.py", "conftest.py", "x.pth"):
        path = os.path.join(folder, name + "-" + W["token"])
        attempt(path, lambda: open(path, "w").write("x"))
        if os.path.exists(path): os.remove(path)"""),
    "swapping its folder for links while it is cleaned up": Escape(
        """
import threading
os.makedirs("d/e", exist_ok=True)
def swap():
    while True:
        for action in (lambda: os.rename("d", "f"), lambda: os.symlink(W["folder"], "d"),
                       lambda: os.unlink("d"), lambda: os.rename("f", "d")):
            try: action()
            except OSError: pass
for _ in range(3): threading.Thread(target=swap, daemon=True).start()
swap()""",
        endless=True,
    ),
    "memory of another process": Escape("""
attempt("mem", lambda: open(f"/proc/{W['victim']}/mem", "rb"))
attempt("maps", lambda: open(f"/proc/{W['victim']}/maps").read())"""),
    "debugging another process": kernel(
        "ptrace seize: 101, 0x4206, W['victim'], 0, 0",
        "process_vm_readv: 310, W['victim'], 0, 0, 0, 0, 0",
        "process_vm_writev: 311, W['victim'], 0, 0, 0, 0, 0",
        "pidfd_open: 434, W['victim'], 0",
        "kcmp: 312, W['victim'], W['victim'], 1, 0, 0",
    ),
    "signals to others": Escape("""
attempt("is it there", lambda: os.kill(W["victim"], 0))
attempt("parent", lambda: os.kill(os.getppid(), 0))
attempt("kill", lambda: os.kill(W["victim"], 9))"""),
    "a signal by way of a descriptor": Escape("""
import fcntl, socket
one, other = socket.socketpair()
def own():
    fcntl.fcntl(one, fcntl.F_SETOWN, W["victim"])
    fcntl.fcntl(one, 10, 9)
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
    other.send(b"x")
attempt("owner", own)"""),
    "keeping others from a library": Escape("""
import fcntl
library = os.open(os.__file__.replace("os.py", "this.py"), os.O_RDONLY)
attempt("lease", lambda: fcntl.fcntl(library, fcntl.F_SETLEASE, fcntl.F_WRLCK))
attempt("mark", lambda: fcntl.fcntl(library, 1036, (2).to_bytes(8, "little")))"""),
    "a signal to everybody": Escape('attempt("all", lambda: os.kill(-1, 9))', needs="seccomp"),
    "limits, priority and CPUs of others": Escape("""
import resource
attempt("limit", lambda: resource.prlimit(W["victim"], resource.RLIMIT_NOFILE, (9, 9)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, W["victim"], 19))
attempt("CPUs", lambda: os.sched_setaffinity(W["victim"], {0}))"""),
    "raising its own limits": Escape("""
import resource
for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    soft, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        attempt(which, lambda: resource.setrlimit(which, (hard + 1, hard + 1)))
    elif which != resource.RLIMIT_CPU:
        print("ESCAPED", "no limit", which)"""),
    "network: TCP and UDP": Escape("""
import socket
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", W["tcp"]), 5).sendall(b"x"))
attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", W["udp"])))
attempt("udp6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
attempt("raw", lambda: socket.socket(type=socket.SOCK_RAW, proto=1))"""),
    "network: Unix sockets": Escape("""
import socket
attempt("path", lambda: socket.socket(socket.AF_UNIX).connect(W["unix"]))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(W["abstract"]))
attempt("datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", W["datagrams"]))"""),
    "network: other families": Escape("""
import socket
for family in ("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_CAN", "AF_TIPC", "AF_QIPCRTR"):
    attempt(family, lambda: socket.socket(getattr(socket, family), socket.SOCK_RAW if family == "AF_PACKET"
        else socket.SOCK_SEQPACKET if family == "AF_ALG" else socket.SOCK_DGRAM))"""),
    "fork bomb": Escape("""
import time
made = 0
for _ in range(60):
    try:
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
        made += 1
    except OSError: pass
if made > 40: print("ESCAPED", made, "processes", flush=True)"""),
    "starting a program": Escape("""
import subprocess
attempt("shell", lambda: subprocess.run(["/bin/sh", "-c", "echo 1"], check=True))
attempt("spawn", lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0))
attempt("pty", lambda: os.openpty())
if os.system("true") == 0: print("ESCAPED system", flush=True)"""),
    "becoming another program": Escape("""
os.execve("/bin/sh", ["sh", "-c", "echo ESCAPED"], {})"""),
    "a program from memory": Escape("""
def run():
    descriptor = os.memfd_create("x", 0)
    os.write(descriptor, b"#!/bin/sh\\necho ESCAPED\\n")
    os.execve(descriptor, ["x"], {})
attempt("memfd", run)"""),
    "a program of its own making": Escape("""
def run():
    with open("own", "w") as file: file.write("#!/bin/sh\\necho ESCAPED\\n")
    os.chmod("own", 0o755)
    os.execve("./own", ["own"], {})
attempt("own", run)
attempt("set-user-ID", lambda: os.chmod("own", 0o4755))"""),
    "a process that outlives it": Escape("""
import time
for _ in range(2):
    if os.fork():
        print("started", flush=True)
        break
    os.setsid()
else:
    for descriptor in (0, 1, 2): os.close(descriptor)
    time.sleep(6)
    os._exit(0)"""),
    "processes by other calls": kernel(
        "vfork-like clone: 56, 0x4000 | 17, 0, 0, 0, 0",
        "setns: 308, 0, 0",
        "unshare user and network: 272, 0x10000000 | 0x40000000",
    ),
    "keys, queues and shared memory": Escape(
        """
attempt("shmget", lambda: call(31, call(29, 0, 4096, 0o600), 0, 0))
attempt("semget", lambda: call(66, call(64, 0, 1, 0o600), 0, 0, 0))
attempt("msgget", lambda: call(71, call(68, 0, 0o600), 0, 0))
attempt("mq_open", lambda: (call(240, W["token"].encode(), 0o102, 0o600, 0), call(241, W["token"].encode())))
attempt("keyctl", lambda: call(250, 0, -1, 1))
attempt("request_key", lambda: call(249, b"user", b"x", 0, -1))""",
        machine="x86_64",
    ),
    "wide doors of the kernel": kernel(
        "io_uring_setup: 425, 1, ctypes.create_string_buffer(120)",
        "userfaultfd: 323, 1",
        "inotify_init1: 294, 0",
        "fanotify_init: 300, 0x200, 0",
        "perf_event_open: 298, ctypes.create_string_buffer(128), 0, -1, -1, 0",
        "bpf: 321, 0, ctypes.create_string_buffer(128), 128",
        "syslog: 103, 10, 0, 0",
        "personality: 135, 0x40000",
        "modify_ldt: 154, 0, ctypes.create_string_buffer(16), 16",
        "seccomp: 317, 2, 0, ctypes.create_string_buffer(8)",
        "mount: 165, 0, b'/none', 0, 0, 0",
        "chroot: 161, b'.'",
        "memfd_create: 319, b'x', 0",
        "memfd_secret: 447, 0",
        "move_pages: 279, W['victim'], 0, 0, 0, 0, 0",
        "process_madvise: 440, 0, 0, 0, 0, 0",
        "landlock_create_ruleset: 444, 0, 0, 1",
    ),
    "system calls of another architecture": Escape(
        """
import mmap
room = mmap.mmap(-1, 4096, prot=7)
room.write(bytes.fromhex("b814000000cd80c3"))
getpid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(room)))
result = getpid()
print("ESCAPED" if result > 0 else "refused", result, flush=True)""",
        machine="x86_64",
    ),
    "memory without end": Escape("""
import mmap
attempt("bytes", lambda: len(bytearray(2 << 30)))
attempt("map", lambda: len(mmap.mmap(-1, 2 << 30)))
attempt("sparse list", lambda: len([0] * (1 << 28)))"""),
    "one file without end": Escape("""
written = 0
with open("big", "wb", buffering=0) as file:
    try:
        while written < 64: written += file.write(bytes(1 << 20)) >> 20
    except OSError: pass
if written == 64: print("ESCAPED", written, "MiB", flush=True)"""),
    "files without end": Escape(
        """
for number in range(4000):
    with open(str(number), "wb") as file: file.write(bytes(1 << 20))
print("ESCAPED", flush=True)""",
        needs="watching",
    ),
    "folders without bottom": Escape(
        """
for _ in range(1200):
    os.mkdir("d")
    os.chdir("d")
open("file", "w").write("x")""",
        needs="watching",
    ),
    "threads without end": Escape(
        """
import threading, time
threading.stack_size(32768)
never = threading.Event()
started = 0
while True:
    try:
        threading.Thread(target=never.wait, daemon=True).start()
        started += 1
    except (RuntimeError, MemoryError): time.sleep(0.1)
    if started == 12_000: print("ESCAPED", flush=True)""",
        needs="watching",
    ),
    "output without end": Escape("""
for _ in range(64): os.write(1, b"x" * (1 << 20))"""),
    "an endless loop": Escape("while True: pass", endless=True),
    "a sleep": Escape("import time\ntime.sleep(600)", endless=True),
    "a sleep with all signals blocked": Escape(
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(600)", endless=True
    ),
    "a loop that ignores signals": Escape(
        "import signal\nfor s in (1, 2, 15, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass", endless=True
    ),
    "stopping itself": Escape("import signal\nos.kill(os.getpid(), signal.SIGSTOP)", endless=True),
    "a C function that does not return": Escape("pow(7, 10 ** 9)", endless=True),
    "a regular expression that does not end": Escape("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", endless=True),
    "waiting for itself": Escape(
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", endless=True
    ),
    "waiting for a pipe": Escape("os.read(os.pipe()[0], 1)", endless=True),
    "threads that spin": Escape(
        "import threading\ndef spin():\n    while True: pass\n"
        "for _ in range(8): threading.Thread(target=spin).start()\nspin()",
        endless=True,
    ),
    "an exit function that does not end": Escape(
        "import atexit, time\natexit.register(time.sleep, 600)\nraise SystemExit", endless=True
    ),
}
"""By what it tries."""
