"""The programs in examples/ run as they stand there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reflexion.testing import FakeOpenAI

EXAMPLES = Path(__file__).parent.parent / "examples"

CODE = """```python
def is_even(n):
    return n % 2 == 0

def is_prime(n):
    return n > 1 and all(n % i for i in range(2, n))
```"""


def output_of(example, tmp_path):
    with FakeOpenAI() as server:
        server.default("m", CODE)
        others = {name: value for name, value in os.environ.items() if not name.startswith(("REFLEXION_", "OPENAI_"))}
        ours = {
            "REFLEXION_BASE_URL": server.base_url,
            "REFLEXION_API_KEY": "any",
            "REFLEXION_MODEL": "m",
            "REFLEXION_DATABASE_URL": f"sqlite:///{tmp_path / 'reflexion.sqlite'}",
        }
        command = [sys.executable, str(EXAMPLES / example)]
        done = subprocess.run(command, check=False, env=others | ours, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_as_subgraph(tmp_path):
    printed = output_of("as_subgraph.py", tmp_path)
    assert printed.startswith("attempt 1 scored 1.00\nReady:\n")
    assert "def is_even(n):" in printed


@pytest.mark.timeout(300)
def test_as_tool(tmp_path):
    printed = output_of("as_tool.py", tmp_path)
    assert printed.count("def is_prime(n):") == 2
    assert printed.count("1 requests") == 2
