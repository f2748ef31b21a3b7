"""The code is found in whatever a model wraps around it."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators.code import extract_code

F = "def f(x):\n    return x + 1"
G = "def g(x):\n    return f(x)"

WITH_FENCE = '''def f():
    """Say:

    ```
    f()
    ```
    """
    return 1'''


def fenced(code, tag="python", fence="```"):
    return f"{fence}{tag}\n{code}\n{fence}"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (F, F),
        (fenced(F), F),
        (fenced(F, "py"), F),
        (fenced(F, "Python3"), F),
        (fenced(F, ""), F),
        (fenced(F, "python", "~~~"), F),
        (fenced(F, "python", "````"), F),
        (fenced(F).replace("\n", "\r\n"), F),
        (f"Here it is:\n\n{fenced(F)}\n\nIt adds one.", F),
        (f"```python\n{F}", F),
        (f"Sure.\n```python\n{F}\n", F),
        (f"1. First\n\n   {fenced(F)}".replace("\n", "\n   "), F),
        (f"{fenced(F)}\nand\n{fenced(G)}", f"{F}\n\n{G}"),
        (f"{fenced('import math')}\n{fenced(F)}", f"import math\n\n{F}"),
        (f"Run it:\n{fenced('pip install x', 'bash')}\n{fenced(F)}\n{fenced('3', 'text')}", F),
        (f"{fenced(F)}\nUse:\n{fenced('print(f(2))')}", F),
        (f"{fenced('def f(x): return 0')}\nNo, better:\n{fenced(F)}", F),
        (fenced(F) + "\n" + fenced(">>> f(1)\n2"), F),
        (f"The code is\n\n{F}\n\nwhich adds one.", F),
        (f"Here you go!\n\nimport math\n\n{F}\nHope it's useful.", f"import math\n\n{F}"),
        ("```python\nx = 2 +\n```", "x = 2 +"),
        (fenced(WITH_FENCE), WITH_FENCE),
        ("", ""),
    ],
)
def test_code_is_taken_out_of(answer, code):
    assert extract_code(answer).strip() == code


@pytest.mark.parametrize(
    "own_tests",
    [
        "assert f(1) == 3",
        "assert f(\n    1\n) == 3",
        "def test_f():\n    assert f(1) == 3\n\ntest_f()",
        "for n in range(3):\n    assert f(n) == n",
        "if __name__ == '__main__':\n    assert f(1) == 3",
        "def check(candidate):\n    assert candidate(1) == 3\n\ncheck(f)",
    ],
)
def test_own_tests_of_an_answer_are_not_run(own_tests):
    code = extract_code(fenced(f"{F}\n\n{own_tests}\nlimit = 3  # ü"))
    names: dict = {"__name__": "candidate"}
    exec(code, names)
    assert (names["f"](1), names["limit"]) == (2, 3)


def test_line_numbers_stay_when_tests_are_taken_out():
    code = extract_code("assert f(\n  1)\ndef f(): return 1\nx = 'ä'; assert x; y = 2\n")
    assert code.splitlines()[2:] == ["def f(): return 1", "x = 'ä'; pass; y = 2"]


@given(st.text(st.sampled_from("`~ \npython:def f()x=1\"'#\\é"), max_size=120))
def test_any_text_gives_some_text(answer):
    assert isinstance(extract_code(answer), str)


@given(
    st.sampled_from([F, G, f"import math\n{F}", f"{F}\n\n\n{G}"]), st.sampled_from(["", "python", "py"]), st.booleans()
)
def test_a_fence_changes_nothing(code, tag, prose):
    answer = fenced(code, tag)
    found = extract_code(f"I think so.\n{answer}\nDone." if prose else answer)
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(code))


def test_a_wrong_test_of_its_own_keeps_no_answer_from_loading():
    code = extract_code(
        "```python\ndef double(n):\n    return 2 * n\n\n"
        "def verify():\n    assert double(2) == 5\n\nverify()\nsetup = double(1)\n```"
    )
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["setup"] == 2


def test_a_call_that_is_no_test_stays():
    code = extract_code("```python\nnames = []\ndef register():\n    names.append('f')\nregister()\n```")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["names"] == ["f"]
