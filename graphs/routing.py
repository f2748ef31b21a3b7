"""The only place that decides whether a run goes on."""

from typing import Literal

from reflexion.graphs.state import State
from reflexion.models import Usage
from reflexion.nodes.attempts import attempts_without_gain, best_attempt, repetitions
from reflexion.nodes.degradation import Degradation, in_order, share_left
from reflexion.nodes.remember import Stop
from reflexion.nodes.settings import Settings

STEPS_AROUND = 2
"""Super-steps besides the rounds: recall and remember."""

MOST_REPETITIONS = 2
"""The first repeated answer gets the planner to look for another approach; the second ends the run."""


def steps_per_round(settings: Settings) -> int:
    """Super-steps of another round: reflector, planner, actor, evaluator, and the reviews among them."""
    return 4 + _reviews(settings, "attempt") + _reviews(settings, "answer")


def recursion_limit(settings: Settings) -> int:
    """LangGraph's limit for a run; our own count of attempts ends it well before."""
    return steps_per_round(settings) * (settings.max_attempts + 1) + STEPS_AROUND


def after_evaluator(
    state: State, settings: Settings, degradation: Degradation = in_order
) -> Literal["reflector", "review", "remember"]:
    """Where the evaluator leads: on, or to the end."""
    end = stop(state, settings, degradation)
    if end is None:
        return "reflector"
    return "review" if end[0] == "passed" and _reviews(settings, "answer") else "remember"


def after_planner(state: State, settings: Settings) -> Literal["review", "actor"]:
    """Where the planner leads: to another attempt, perhaps past a reviewer."""
    return "review" if _reviews(settings, "attempt") and not state.get("failure") else "actor"


def after_review(
    state: State, settings: Settings, degradation: Degradation = in_order
) -> Literal["reflector", "actor", "remember"]:
    """Where a reviewer's decision leads."""
    review, last = state["review"], state["attempts"][-1]
    if review is None or review["action"] == "stop" or last.get("passed"):
        return "remember"
    if review["about"] == "attempt":
        return "actor"
    return "remember" if stop(state, settings, degradation) else "reflector"


def _reviews(settings: Settings, about: Literal["attempt", "answer"]) -> bool:
    return settings.review in {about, "both"}


def stop(state: State, settings: Settings, degradation: Degradation = in_order) -> Stop | None:
    """Why the run ends here, with a sentence on it; None where it goes on.

    Reasons are looked at in a fixed order, and none of them can turn false between the edge and the last
    node, so both see the same one.
    """
    failure = state.get("failure")
    if failure:
        return failure["reason"], f"{failure['node']}: {failure['message']}"
    review = state.get("review")
    if review and review["action"] == "stop":
        return "cancelled", "the reviewer ended the run"
    attempts = state["attempts"]
    last = attempts[-1]
    score = last.get("score")
    if score is None:
        return "evaluator_failed", last.get("feedback", "")
    best = best_attempt(attempts)
    if best and best.get("passed"):
        advisory = f" (advisory, by {best.get('evaluator')})" if best.get("advisory") else ""
        scored = f"attempt {best['number']} scored {best.get('score'):.2f} of at least {settings.threshold:.2f}"
        return "passed", scored + advisory
    if len(attempts) >= settings.max_attempts:
        return "max_attempts", f"no attempt of {len(attempts)} reached {settings.threshold:.2f}"
    return _plateau(state, settings) or _spent(state, settings, degradation) or _out_of_steps(state, settings)


def _plateau(state: State, settings: Settings) -> Stop | None:
    attempts = state["attempts"]
    idle = attempts_without_gain(attempts)
    if settings.patience and idle >= settings.patience:
        return "plateau", f"no better score for {idle} attempts"
    if "repeats" in attempts[-1] and repetitions(attempts) >= MOST_REPETITIONS:
        return (
            "plateau",
            f"attempt {attempts[-1]['number']} repeats the answer of attempt {attempts[-1]['repeats']}",
        )
    return None


def _spent(state: State, settings: Settings, degradation: Degradation) -> Stop | None:
    usage = Usage.of(state["calls"])
    if settings.budget_requests is not None and usage.requests >= settings.budget_requests:
        return "budget", f"{usage.requests} of {settings.budget_requests} requests are made"
    if settings.budget_tokens is not None and usage.tokens >= settings.budget_tokens:
        return "budget", f"{usage.tokens} of {settings.budget_tokens} tokens are spent"
    if settings.budget_usd is not None and usage.cost_usd is not None and usage.cost_usd >= settings.budget_usd:
        return "budget", f"{usage.cost_usd:f} of {settings.budget_usd:f} USD are spent"
    left = share_left(usage, settings)
    if degradation(left).no_further_attempt:
        return "budget", f"{left:.0%} of the budget is left, too little for another attempt"
    if settings.deadline_s is not None and state["elapsed_s"] >= settings.deadline_s:
        return "deadline", f"{state['elapsed_s']:.1f} of {settings.deadline_s:g} seconds are over"
    return None


def _out_of_steps(state: State, settings: Settings) -> Stop | None:
    """End before a recursion limit from outside does, which would lose everything."""
    if state["remaining_steps"] > steps_per_round(settings) + 1:
        return None
    return "max_attempts", "the caller's recursion limit leaves no room for another attempt"
