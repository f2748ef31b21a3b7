"""The full set of layers against everything that `benchmarks/sandbox_escapes.py` tries; looked at from outside."""

import platform

import pytest
from leftovers import processes_in
from sandbox_escapes import ESCAPES
from sandbox_world import ESCAPED, World

from reflexion.sandbox import Limits, judge, missing_layers

pytestmark = pytest.mark.skipif(missing_layers() != (), reason="this platform lacks some of the layers")


@pytest.mark.parametrize("name", ESCAPES)
async def test_no_attack_gets_out(name, box, monkeypatch):
    escape = ESCAPES[name]
    if escape.machine not in ("", platform.machine()):
        pytest.skip("it knows the system calls of another architecture")
    limits = Limits(wall_s=2 if escape.endless else 40, cpu_s=20)
    with World() as world:
        monkeypatch.setenv("CANARY", world.token)
        verdict = await judge(world.source(escape.code), "assert volume_cube(3) == 27", limits=limits)
        assert world.harm() == []
    assert not verdict.passed
    assert ESCAPED not in verdict.output
    assert len(verdict.output) < 2 * limits.output_bytes
    assert verdict.state in (
        {"timeout", "candidate_failed"} if escape.endless else {"ran", "candidate_failed", "crashed"}
    )
    assert processes_in(box) == []
    assert list(box.iterdir()) == []
