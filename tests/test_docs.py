"""Every example in the README and in docs/ runs as it stands there."""

import os
import re
from pathlib import Path

import pytest

from reflexion.testing import FakeOpenAI

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_THE_MODEL = {"embedded-model.md"}
"""Pages whose examples speak to the real embedded model; tests/models/embedded runs that."""

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name not in NEEDS_THE_MODEL
    for number, code in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")), start=1)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_runs(code, tmp_path, monkeypatch):
    for name in os.environ:
        if name.startswith(("REFLEXION_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with FakeOpenAI() as server:
        server.default("m", answer)
        monkeypatch.setenv("REFLEXION_BASE_URL", server.base_url)
        monkeypatch.setenv("REFLEXION_MODEL", "m")
        exec(compile(code, "<example>", "exec"), {"__name__": "__main__"})


def answer(body: dict) -> str:
    """What a good model would reply to the tasks of the examples."""
    asked = body["messages"][-1]["content"]
    replies = {
        "asserts on": "assert is_prime(7)\nassert not is_prime(9)",
        "is_prime": "```python\ndef is_prime(n):\n    return n > 1 and all(n % i for i in range(2, n))\n```",
        "is_even": "```python\ndef is_even(n):\n    return n % 2 == 0\n```",
        "JSON object": '{"score": 9}',
    }
    return next((reply for part, reply in replies.items() if part in asked), "Answer: Paris")


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
