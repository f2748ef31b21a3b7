"""How alike tasks are, by meaning and by words together."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflexion.memory.choice import LEAST_LIKENESS
from reflexion.memory.likeness import hybrid, rank
from reflexion.models.embedding import chosen

PRIME = "Write a function is_prime(n) that returns True if n is a prime number."
REWORDED = "Return True if a given number is prime, and False otherwise"
FLATTEN = "Write a function that makes one flat list of a nested one."
POEM = "Write a poem about autumn."


def scored(query: str, texts: list[str]) -> list[tuple[float, str]]:
    """The texts as a store with the embedded embeddings finds them."""
    model = chosen(True)
    assert model is not None
    asked, *vectors = model.embed_documents([query, *texts])
    cosines = [fsum(a * b for a, b in zip(asked, vector, strict=True)) for vector in vectors]
    return list(zip(cosines, texts, strict=True))


def test_the_same_words_have_a_likeness_of_1():
    assert hybrid(PRIME, scored(PRIME, [FLATTEN, PRIME]))[1] == pytest.approx(1)


@pytest.mark.parametrize("others", [[], [FLATTEN], [FLATTEN, POEM]], ids=len)
def test_a_task_put_otherwise_is_a_hit_and_another_task_is_not(others):
    own, *rest = hybrid(REWORDED, scored(REWORDED, [PRIME, *others]))
    assert own >= LEAST_LIKENESS
    assert all(likeness < LEAST_LIKENESS for likeness in rest)


def test_meaning_decides_where_words_do_not():
    near, far = hybrid(POEM, [(0.8, PRIME), (0.1, PRIME)])
    assert near > far


def test_words_decide_where_meaning_does_not():
    near, far = hybrid(PRIME, [(0.5, REWORDED), (0.5, POEM)])
    assert near > far


def test_without_embeddings_it_is_the_likeness_of_the_words():
    texts = [PRIME, FLATTEN, POEM]
    words = rank(REWORDED, texts)
    assert hybrid(REWORDED, list(zip(words, texts, strict=True))) == pytest.approx(words)


def test_another_lesson_of_a_task_changes_no_likeness():
    once = hybrid(REWORDED, [(0.8, PRIME), (0.2, FLATTEN)])
    often = hybrid(REWORDED, [(0.8, PRIME), (0.8, PRIME), (0.8, PRIME), (0.2, FLATTEN)])
    assert once == [often[0], often[3]]


def test_of_nothing_there_is_no_likeness():
    assert hybrid(PRIME, []) == []


@given(st.text(max_size=40), st.lists(st.tuples(st.floats(-1.001, 1.001), st.text(max_size=40)), max_size=5))
def test_a_likeness_is_between_0_and_1_and_in_the_order_of_what_was_found(query, found):
    likeness = hybrid(query, found)
    assert len(likeness) == len(found)
    assert all(0 <= each <= 1 for each in likeness)
