"""Plain data that crosses between the two processes: it comes out exactly as it went in."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflexion.sandbox.wire import Codec, WireError, restore


def no_objects(value):
    raise WireError(f"no plain data: {value!r}")


CODEC = Codec(no_objects, no_objects)

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
)
keys = st.none() | st.integers() | st.text() | st.tuples(st.integers(), st.text()) | st.frozensets(st.integers())
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.frozensets(keys)
    ),
    max_leaves=20,
)


def same(left, right):
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    return left == right and (not isinstance(left, float) or math.copysign(1, left) == math.copysign(1, right))


@given(values)
@settings(deadline=None, max_examples=40)
def test_plain_data_comes_out_as_it_went_in(value):
    assert same(CODEC.decode(CODEC.encode(value)), value)


@given(st.lists(values), st.lists(values))
@settings(deadline=None, max_examples=20)
def test_a_changed_list_is_restored_in_place(old, new):
    kept = old
    restore(old, new)
    assert kept is old
    assert same(old, new)


def test_nan_and_surrogates_cross():
    assert math.isnan(CODEC.decode(CODEC.encode(math.nan)))
    assert CODEC.decode(CODEC.encode("\ud800")) == "\ud800"


def test_what_holds_itself_is_refused():
    circle = []
    circle.append(circle)
    with pytest.raises(WireError, match="holds itself"):
        CODEC.encode(circle)
