import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_example_in_the_documentation_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
