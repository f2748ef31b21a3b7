"""A loopback OpenAI-compatible server that misbehaves on command, for testing agents without a model.

>>> with FakeOpenAI() as server:
...     server.script("critic-m", Reply(status=503, headers={"Retry-After": "1"}), '{"score": 8}')
...     server.base_url.startswith("http://127.0.0.1:")
True
"""

from reflexion.testing.fake_langsmith import FakeLangSmith
from reflexion.testing.fake_langsmith_datasets import FakeDatasets
from reflexion.testing.playbook import Recorded
from reflexion.testing.reply import Reply, Script, Scripted
from reflexion.testing.server import FakeOpenAI
from reflexion.testing.tokens import count_tokens, prompt_tokens
from reflexion.testing.traces import TracedRun

__all__ = [
    "FakeDatasets",
    "FakeLangSmith",
    "FakeOpenAI",
    "Recorded",
    "Reply",
    "Script",
    "Scripted",
    "TracedRun",
    "count_tokens",
    "prompt_tokens",
]
