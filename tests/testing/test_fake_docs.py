import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_the_example_in_the_documentation_runs(example):
    exec(compile(example, str(PAGE), "exec"), {})
