"""`examples/compose.yaml` names what the worker knows."""

import tomllib
from pathlib import Path

import yaml

from reflexion.batch.temporal import Place
from reflexion.graphs.installation import Installation

ROOT = Path(__file__).parents[3]


def test_the_worker_knows_each_variable_that_it_is_given():
    services = yaml.safe_load((ROOT / "examples" / "compose.yaml").read_text())["services"]
    known = {f"REFLEXION_{name}".upper() for name in Installation.model_fields}
    known |= {f"REFLEXION_TEMPORAL_{name}".upper() for name in Place.model_fields}
    worker = services["worker"]
    assert set(worker["environment"]) <= known
    assert set(worker["depends_on"]) == set(services) - {"worker"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"redis", "temporal"} <= set(extras)
    assert "[redis,temporal]" in worker["build"]["dockerfile_inline"]
