"""Percentiles and rates from ledger lines."""

import pytest
from exchanges import ended, exchange
from hypothesis import given
from hypothesis import strategies as st

from reflexion.models.statistics import Percentiles, Statistics, nearest_rank, statistics


def line(latency_s=1.0, first_s=None, reply=10, outcome="ok", **where):
    call = ended(exchange(), reply=reply, latency_s=latency_s, first_token_s=first_s, outcome=outcome)
    return {**call, "run_id": "r", "thread_id": "t", "batch_id": "b", **where}


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [
        # The example of Wikipedia's article on percentiles, read for its nearest ranks.
        ([15, 20, 35, 40, 50], 5, 15),
        ([15, 20, 35, 40, 50], 30, 20),
        ([15, 20, 35, 40, 50], 40, 20),
        ([15, 20, 35, 40, 50], 50, 35),
        ([15, 20, 35, 40, 50], 100, 50),
        ([7], 99, 7),
        (list(range(1, 101)), 95, 95),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 201)), 99, 198),
    ],
)
def test_nearest_rank(values, percent, found):
    assert nearest_rank(values, percent) == found


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 100))
def test_the_nearest_rank_is_a_value_that_enough_values_do_not_exceed(values, percent):
    found = nearest_rank(sorted(values), percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_no_values_have_no_percentiles():
    assert Percentiles.of([]) == Percentiles(p50=None, p95=None, p99=None)
    assert Statistics.of([]).tokens_per_second is None


def test_latency_is_that_of_replies_and_failures_are_counted_by_kind():
    lines = [
        line(1.0, 0.25, reply=100),
        line(3.0, 0.75, reply=100),
        line(0.01, outcome="rate_limit"),
        line(0.01, outcome="rate_limit"),
        line(60.0, outcome="timeout"),
        line(0.0, outcome="lost"),
        line(0.0, outcome="pending"),
        line(0.0, reply=0, outcome="cached"),
    ]
    found = Statistics.of(lines)
    assert (found.requests, found.cached) == (6, 1)
    assert found.failures == {"rate_limit": 2, "timeout": 1, "lost": 1}
    assert found.latency_ms == Percentiles(p50=1000.0, p95=3000.0, p99=3000.0)
    assert found.first_token_ms == Percentiles(p50=250.0, p95=750.0, p99=750.0)
    assert found.tokens_per_second == 50
    assert found.as_json()["latency_ms"] == {"p50": 1000.0, "p95": 3000.0, "p99": 3000.0}


def test_by_role_and_by_model():
    lines = [line(role="actor", model="a"), line(role="evaluator", model="a"), line(role="actor", model="b")]
    assert {role: found.requests for role, found in statistics(lines, "role").items()} == {"actor": 2, "evaluator": 1}
    assert {name: found.requests for name, found in statistics(lines, "model").items()} == {"a": 2, "b": 1}
