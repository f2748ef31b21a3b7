"""The edge after the evaluator, as a table."""

import pytest

from reflexion.graphs.routing import after_evaluator, recursion_limit, stop
from reflexion.graphs.state import fresh
from reflexion.models import Call
from reflexion.nodes import Settings, StopReason
from reflexion.nodes.attempts import best_attempt
from reflexion.nodes.degradation import Measures


def attempts(*scores, **last):
    made = [
        {"number": number, "answer": f"a{number}", "plan": "", "style": "fresh", "score": score, "passed": False}
        for number, score in enumerate(scores, 1)
    ]
    made[-1] |= last
    return made


def call(**values) -> Call:
    line = dict.fromkeys(Call.__annotations__, 0) | {"id": "1", "role": "actor", "cost_usd": None, "estimated": False}
    return line | values


def state(made, **values):
    return fresh() | {"calls": [], "elapsed_s": 0.0, "remaining_steps": 100, "attempts": made} | values


FAILURE = {"reason": "model_error", "kind": "overloaded", "node": "actor", "message": "down"}
SPENT = [call(prompt_tokens=60, completion_tokens=40, cost_usd="0.25")]

TABLE: list[tuple[StopReason | None, dict, dict]] = [
    (None, state(attempts(0.4)), {}),
    ("passed", state(attempts(0.4, 0.9, passed=True)), {}),
    ("passed", state(attempts(0.9, passed=True)), {"max_attempts": 1, "budget_tokens": 1, "deadline_s": 1}),
    ("max_attempts", state(attempts(0.4, 0.5, 0.6)), {}),
    (None, state(attempts(0.4, 0.5, 0.6)), {"max_attempts": 4}),
    ("evaluator_failed", state(attempts(0.4, None)), {}),
    ("model_error", state(attempts(0.4), failure=FAILURE), {}),
    ("model_error", state([], failure=FAILURE), {}),
    ("cancelled", state(attempts(0.9, passed=True), failure=FAILURE | {"reason": "cancelled"}), {}),
    (None, state(attempts(0.4, 0.4)), {"patience": 2}),
    ("plateau", state(attempts(0.4, 0.4, 0.4)), {"patience": 2, "max_attempts": 9}),
    ("plateau", state(attempts(0.6, 0.4, 0.5)), {"patience": 2, "max_attempts": 9}),
    (None, state(attempts(0.4, 0.4, 0.5)), {"patience": 2, "max_attempts": 9}),
    (None, state(attempts(0.4, 0.4, 0.4)), {"patience": 0, "max_attempts": 9}),
    (None, state(attempts(0.4, 0.4, repeats=1)), {"max_attempts": 9}),
    ("budget", state(attempts(0.4), calls=SPENT), {"budget_tokens": 100}),
    ("budget", state(attempts(0.4), calls=SPENT), {"budget_tokens": 111}),
    (None, state(attempts(0.4), calls=SPENT), {"budget_tokens": 112}),
    ("budget", state(attempts(0.4), calls=SPENT), {"budget_usd": "0.25"}),
    ("budget", state(attempts(0.4), calls=SPENT), {"budget_usd": "0.277"}),
    (None, state(attempts(0.4), calls=SPENT), {"budget_usd": "0.278"}),
    ("budget", state(attempts(0.4), calls=SPENT * 2), {"budget_requests": 2}),
    (None, state(attempts(0.4), calls=SPENT * 2), {"budget_requests": 3}),
    ("deadline", state(attempts(0.4), elapsed_s=5.0), {"deadline_s": 5}),
    (None, state(attempts(0.4), elapsed_s=4.9), {"deadline_s": 5}),
    ("max_attempts", state(attempts(0.4), remaining_steps=5), {}),
    (None, state(attempts(0.4), remaining_steps=6), {}),
]


@pytest.mark.parametrize(("reason", "before", "settings"), TABLE)
def test_the_edge_after_the_evaluator(reason, before, settings):
    ended = stop(before, Settings(**settings))
    assert (ended and ended[0]) == reason


@pytest.mark.parametrize(("reason", "before", "settings"), TABLE)
def test_the_edge_names_the_next_node(reason, before, settings):
    assert after_evaluator(before, Settings(**settings)) == ("remember" if reason else "reflector")


@pytest.mark.parametrize("cap", [{"budget_tokens": 101}, {"budget_usd": "0.2500001"}, {"budget_requests": 2}])
def test_a_policy_that_gives_nothing_up_spends_to_the_last(cap):
    assert stop(state(attempts(0.4), calls=SPENT), Settings(**cap), lambda _: Measures()) is None


def test_a_second_repetition_ends_the_run():
    made = attempts(0.4, 0.5, 0.4, 0.5)
    made[2]["repeats"] = 1
    before = state(made[:3])
    assert stop(before, Settings(max_attempts=9)) is None
    made[3]["repeats"] = 2
    assert stop(state(made), Settings(max_attempts=9)) == ("plateau", "attempt 4 repeats the answer of attempt 2")


@pytest.mark.parametrize("max_attempts", [1, 2, 12, 100])
def test_the_recursion_limit_leaves_room_for_every_attempt(max_attempts):
    steps = 3 + 4 * (max_attempts - 1) + 1
    left_at_the_last_edge = recursion_limit(Settings(max_attempts=max_attempts)) - (steps - 1)
    assert left_at_the_last_edge > 1


@pytest.mark.parametrize(
    ("made", "best"),
    [
        (attempts(0.4, 0.8, 0.6, 0.5), 2),
        (attempts(0.5, 0.5), 1),
        (attempts(0.0, None), 1),
        (attempts(None, None), 1),
        ([attempts(0.0, flaw="empty")[0], attempts(0.0, 0.0)[1]], 2),
        ([attempts(0.0, flaw="empty")[0], attempts(0.0, None)[1]], 2),
        ([attempts(0.0, flaw="truncated")[0], attempts(0.0, 0.0, flaw="empty")[1]], 1),
    ],
)
def test_the_best_attempt_is_the_first_of_the_highest_score_and_never_an_empty_one(made, best):
    assert best_attempt(made)["number"] == best
