"""Plain execution, to compare the judge with: code and tests as one program, believed by its exit code.

For known data, not for a model's answers: nothing but time and memory is limited.
"""

import subprocess
import sys

MEMORY = 2 << 30
"""Bytes of address space: a broken loop may gather without end."""


def run_plainly(code: str, tests: str, entry: str, wall_s: float) -> str:
    """Give the last line of what went wrong, empty for a pass."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))"
    program = f"{code}\n{tests}\ncheck({entry})\n"
    command = [
        sys.executable,
        "-I",
        "-c",
        f"{limit}\nimport sys\nexec(compile(sys.stdin.buffer.read(), 'program', 'exec'))",
    ]
    try:
        ended = subprocess.run(command, input=program.encode(), capture_output=True, timeout=wall_s, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {wall_s:g} s"
    told = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
    return told[0] if ended.returncode else ""
