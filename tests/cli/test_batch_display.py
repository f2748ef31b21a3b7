"""What the progress of a batch says, in a terminal and in a pipe."""

import io
from decimal import Decimal

import pytest
from rich.console import Console

from reflexion.batch import Health, Progress, Savings, Spent
from reflexion.cli.batch_progress import Display, clock, lines_of
from reflexion.models.circuit import CircuitState
from reflexion.models.limits import LimitState


def progress(**changes):
    usual = {
        "batch_id": "b",
        "counts": {"passed": 6, "failed": 2, "error": 2},
        "bad_lines": 0,
        "ran": 10,
        "read": 100,
        "expected": 1000,
        "running": 8,
        "waiting": 82,
        "elapsed_s": 65.0,
        "rate": 2.0,
        "spent": Spent(requests=20, tokens=2000, cost_usd=Decimal("0.5")),
        "budget_usd": Decimal(5),
        "budget_tokens": None,
        "forecast_usd": Decimal(50),
        "forecast_tokens": 200_000,
        "left": 0.9,
        "savings": Savings(),
        "paused": "",
        "stopped": "",
        "stopped_by": "",
    }
    return Progress(**usual | changes)


def test_how_far_what_came_of_it_and_what_it_cost():
    assert lines_of(progress()) == [
        "10 of 1,000 tasks, 1 %, 2.0/s, 1:05, 8:15 to go",
        "6 passed, 2 failed, 0 unscored, 2 error, 8 at work",
        "$0.5000 of $5.0000 (forecast $50.0000), 2,000 tokens (forecast 200,000)",
    ]


def test_what_is_not_known_is_not_told():
    unknown = progress(expected=None, rate=None, spent=Spent(cost_usd=None), forecast_usd=None, forecast_tokens=None)
    assert lines_of(unknown)[0] == "10 tasks, 1:05"
    assert lines_of(unknown)[2] == "cost unknown, 0 tokens"


LIMIT = LimitState(endpoint="e", model="m", requests_left=3.7, tokens_left=-5, queued=4, in_flight=2)
FREE = LimitState(endpoint="e", model="m", requests_left=None, tokens_left=None, queued=0, in_flight=2)
CIRCUIT = {"endpoint": "e", "model": "m", "since_s": 1.0, "openings": 1, "faults": 5, "requests": 9, "why": "503"}
OPEN = CircuitState(**CIRCUIT, state="open", retry_in_s=12.0)
CLOSED = CircuitState(**CIRCUIT, state="closed", retry_in_s=None)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"health": Health(limits=[FREE], circuits=[CLOSED])}, []),
        (
            {"health": Health(limits=[LIMIT])},
            ["limits of m: 3 requests left now, 0 tokens left now, 2 in flight, 4 wait"],
        ),
        ({"health": Health(circuits=[OPEN])}, ["the circuit of m is open, tried again in 12 s: 503"]),
        ({"savings": Savings(fewer_attempts=True, no_planner=True)}, ["saving: half the attempts, no plans"]),
        ({"paused": "503"}, ["paused: 503"]),
        ({"paused": "503", "stopped": "the budget is spent"}, ["stopped: the budget is spent"]),
    ],
)
def test_what_hinders_it(changes, lines):
    assert lines_of(progress(**changes))[3:] == lines


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3725, "1:02:05")])
def test_times(seconds, text):
    assert clock(seconds) == text


def test_events_are_told_and_errors_only_at_first():
    console = Console(file=io.StringIO(), width=200)
    display = Display(console, shown=True)
    display.tell({"event": "saving", "left": 0.2, "cheaper_model": True, "fewer_attempts": True, "no_planner": False})
    for number in range(9):
        display.tell({"event": "task_finished", "id": f"t{number}", "status": "error", "error": "a\nb"})
    display.tell({"event": "task_finished", "id": "ok", "status": "passed", "error": ""})
    display.tell({"event": "paused", "reason": "503", "seconds": 15.0})
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("20 % of the money or time is left; further tasks get the cheaper model")
    assert lines[1:5] == [f"t{number}: a b" for number in range(4)]
    assert lines[5:] == ["t4: a b; further errors are in the results", "paused for 15 s: 503"]


def test_nothing_is_told_where_nothing_is_wanted():
    console = Console(file=io.StringIO())
    Display(console, shown=False).tell({"event": "paused", "reason": "503", "seconds": 15.0})
    assert console.file.getvalue() == ""
