"""What a batch gives up as its money or its time runs short, in a stated order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reflexion.models import ROLES
from reflexion.nodes import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What tasks that are handed out from now on have to do without."""

    cheaper_model: bool = False
    """All roles ask `Settings.cheaper_model`, where there is one."""
    fewer_attempts: bool = False
    """Half as many attempts, rounded up."""
    no_planner: bool = False
    """No plan between two attempts."""


Economy = Callable[[float], Savings]
"""A policy: from the share of money or time that is left (0..1), whichever is less, to what is given up."""


def in_order(left: float) -> Savings:
    """The standard policy: below a half the cheaper model, below a quarter fewer attempts, below a tenth no plan."""
    return Savings(cheaper_model=left < 0.5, fewer_attempts=left < 0.25, no_planner=left < 0.1)


def felt(settings: Settings, savings: Savings) -> Savings:
    """What of it runs with these settings do without in fact."""
    return Savings(
        cheaper_model=savings.cheaper_model and settings.cheaper_model is not None,
        fewer_attempts=savings.fewer_attempts and settings.max_attempts > 1,
        no_planner=savings.no_planner and settings.planner and settings.max_attempts > 1,
    )


def saving(settings: Settings, savings: Savings) -> Mapping[str, Any]:
    """The fields of a task's settings that its savings change."""
    changes: dict[str, Any] = {}
    if savings.cheaper_model and settings.cheaper_model is not None:
        changes |= {f"{role}_model": settings.cheaper_model for role in ROLES}
    if savings.fewer_attempts:
        changes["max_attempts"] = -(-settings.max_attempts // 2)
    if savings.no_planner:
        changes["planner"] = False
    return changes
