"""Whether code leaves anything open, asked of a process that has run nothing else."""

import subprocess
import sys
import textwrap


def assert_leaks_nothing(code: str) -> None:
    """Run code on its own; whatever it does not close makes Python complain when it is collected."""
    script = f"{textwrap.dedent(code)}\nimport gc\ngc.collect()\n"
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
