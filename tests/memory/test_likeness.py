"""How alike two tasks are."""

import pytest

from reflexion.memory.choice import LEAST_LIKENESS
from reflexion.memory.likeness import rank

PRIME = 'def is_prime(n: int) -> bool:\n    """Return True if n is a prime number, False otherwise."""'
SORT = 'def sort_words(text: str) -> str:\n    """Sort the words of a text by their length."""'
FLATTEN = 'def flatten(nested: list) -> list:\n    """Flatten a nested list of any depth."""'


@pytest.mark.parametrize(
    ("asked", "known", "alike"),
    [
        (PRIME, [PRIME], True),
        (PRIME.replace("is_prime", "check"), [PRIME, SORT, FLATTEN], True),
        (
            "Write a Python function. Return True if n is a prime number, False otherwise.",
            [PRIME, SORT, FLATTEN],
            True,
        ),
        (PRIME, [SORT], False),
        (PRIME, [SORT, FLATTEN], False),
        ("Schreibe ein Gedicht über den Herbst.", [PRIME, SORT], False),
    ],
)
def test_other_words_for_a_task_are_like_it_and_another_task_is_not(asked, known, alike):
    likeness = rank(asked, known)
    assert (max(likeness) >= LEAST_LIKENESS) is alike
    assert likeness[0] == max(likeness) or not alike


def test_likeness_of_odd_texts():
    assert rank("", ["", "a"])[0] in {0.0, 1.0}
    assert rank("x" * 1_000_000, ["x" * 1_000_000]) == [pytest.approx(1.0)]
