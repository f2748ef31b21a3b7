"""What is taken out of a model's reply as tests: plain asserts on the function, and nothing that could do more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.evaluators.own_tests import LONGEST, MOST_READ, MOST_USED, read_tests


def usable(reply, function="f"):
    return [test["source"] for test in read_tests(reply, function) if not test["rejected"]]


@pytest.mark.parametrize(
    "reply",
    [
        "assert f(1) == 2\nassert f([]) == 0",
        "Sure:\n```python\nassert f(1) == 2, 'one'\nassert f(\n    []\n) == 0\n```\nDone.",
        "```\ndef f(n):\n    return n\n\ndef test_f():\n    assert f(1) == 2\n    assert f([]) == 0\n```",
        "Here they are.\nassert f(1) == 2  # ordinary\nand then\nassert f(\n  []) == 0\nassert f(3",
        "```python\nassert f(1)==2\nassert f(1) == 2\nassert f([]) == 0",
    ],
)
def test_asserts_are_found_once_wherever_they_stand(reply):
    assert usable(reply) == ["assert f(1) == 2", "assert f([]) == 0"]


@pytest.mark.parametrize(
    "source",
    [
        "assert f(1.5, [2], key='a') == {'a': (None, True)}",
        "assert not f(-1)",
        "assert f(1) is True",
        "assert abs(f(2) - 1.41) < 0.01",
        "assert math.isclose(f(2), math.pi / 2, rel_tol=1e-09)",
        "assert sorted(f({1, 2})) == [1, 2]",
        "assert f([0] * 100)[-1] == 2 ** 10",
        "assert len(f('a' * 3)) == 3 and isinstance(f('a'), str)",
    ],
)
def test_plain_tests_are_kept_as_they_are(source):
    assert usable(source) == [source]


@pytest.mark.parametrize(
    "source",
    [
        "assert g(1) == 2",
        "assert 1 + 1 == 2",
        "assert f(open('/etc/passwd').read()) == 1",
        "assert f(1) == print(2)",
        "assert f(1) == __import__('os').system('true')",
        "assert f(random.random()) == 1",
        "assert f(1) == time.time()",
        "assert f(input()) == 1",
        "assert f(lambda: 1) == 1",
        "assert [f(n) for n in range(10 ** 9)] == []",
        "assert f(1).__class__ == int",
        "assert f.__globals__ == {}",
        "assert (x := f(1)) == 1",
        "assert f(9 ** 9 ** 9) == 1",
        "assert f(1 << 100000) == 1",
        "assert f('a' * 1000000) == 1",
        "assert math.factorial(99999) == f(1)",
        f"assert f('{'x' * LONGEST}') == 1",
    ],
)
def test_a_test_that_does_more_than_call_and_compare_is_rejected_with_the_reason(source):
    (test,) = read_tests(source, "f")
    assert test["rejected"]
    assert test["origin"] == "model"
    assert len(test["source"]) <= LONGEST


def test_their_number_is_bounded():
    tests = read_tests("\n".join(f"assert f({n}) == {n}" for n in range(1_000)), "f")
    assert len(tests) == MOST_READ
    assert sum(not test["rejected"] for test in tests) == MOST_USED


def test_a_reply_without_tests_has_none():
    assert read_tests("I would rather not assert anything.", "f") == []
    assert read_tests("", "f") == []


@given(st.text(alphabet="assert f(1)=='\"\n`#[]{}:\\\0", max_size=80))
def test_no_reply_breaks_the_reader(reply):
    assert all(test["source"].startswith("assert ") for test in read_tests(reply, "f"))
